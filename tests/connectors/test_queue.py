"""A connector that another package brings, by the statements of an operator; no Spark is needed."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from catalog_migrate.catalog.clock import SystemClock
from catalog_migrate.catalog.memory_log import MemoryLog
from catalog_migrate.catalog.opening import create_catalog, read_state
from catalog_migrate.catalog.records import ClusterRecord
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors import base
from catalog_migrate.errors import (
    CatalogMigrateError,
    ConnectorMissing,
    InvalidOptions,
    RefusedStatement,
    UnsafeBlocked,
    ValidationFailed,
)
from catalog_migrate.model.findings import MISSING
from catalog_migrate.streams.catalog import dependencies
from catalog_migrate.streams.catalog.query_spec import first_stream, spec_of
from catalog_migrate.streams.checkpoint.directory import Checkpoint
from catalog_migrate.streams.ddl.execute import Executor, Result
from catalog_migrate.streams.runtime.probes import Answered, ask_together, share_clients
from catalog_migrate.streams.upstreams.upstream import ServerUpstreams
from tests.decisions import Changes, commit
from tests.services.checkpoints import adopt, root

if TYPE_CHECKING:
    from catalog_migrate_queue.directory import Directory


class Queues:
    """A catalog, and queues ``orders`` (2 partitions) and ``sent`` in a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = MemoryLog()
        create_catalog(self.log, warehouse=str(place / "warehouse"))
        self.directory = self.queues("q")

    def queues(self, name: str) -> Directory:
        """A directory of queues."""
        from catalog_migrate_queue.directory import Directory

        made = Directory(str(self.place / name))
        made.create()
        made.create_queue("orders", 2)
        made.create_queue("sent")
        return made

    @property
    def state(self) -> State:
        return read_state(self.log)

    def put(self, collection: str, key: str, record: Any) -> None:
        """Commit one row."""
        changes = Changes()
        changes.put(collection, key, record)
        commit(self.log, lambda _: changes, kind="test")

    # -- the source, as a runtime leaves it ------------------------------------------------------

    @property
    def source(self) -> str:
        """The source's item."""
        return dependencies.find(self.state, "source", "s").item_id

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(f"{self.place}/warehouse/{first_stream(self.source).checkpoint}")

    def started(self, positions: dict[int, int]) -> None:
        """As if one batch had been read, up to these positions, and the gate were open."""
        stream = msgspec.structs.replace(
            first_stream(self.source), upstream=self.directory.identity(),
            topics={"orders": self.directory.queue_id("orders")},
        )
        self.put("stream", self.source, stream)
        path = root(self.checkpoint)
        for name in ("offsets", "commits"):
            (path / name).mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":1795277816210,"conf":{}}'
        line = json.dumps({"orders": {str(number): at for number, at in positions.items()}})
        (path / "offsets" / "0").write_text(f"v1\n{meta}\n{line}")
        (path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
        adopt(self.checkpoint, item=self.source, sources=[f"source {self.source}"])
        cluster = dependencies.find(self.state, "cluster", "main").item_id
        self.put("cluster", cluster, ClusterRecord(unsafe=True))

    @property
    def positions(self) -> dict[int, int]:
        """The next record by partition."""
        latest = self.checkpoint.latest_offsets
        assert latest is not None
        (partitions,) = json.loads(self.checkpoint.entry(latest).sources[0]).values()
        return {int(number): offset for number, offset in partitions.items()}

    def run(self, text: str, **options: Any) -> list[Result]:
        return Executor(
            self.log, lambda _state, _item: None, SystemClock(), **options
        ).run(text)

    def shown(self, text: str) -> str:
        """What a SHOW CREATE says, on one line."""
        (result,) = self.run(text)
        return " ".join(result.summary.split())


@pytest.fixture
def queues(installed: Path, tmp_path: Path) -> Queues:
    """A catalog with a source and a sink of QUEUE, nothing of it running."""
    del installed
    made = Queues(tmp_path)
    made.run(
        "CREATE CLUSTER main;"
        f"CREATE CONNECTION c TO QUEUE (PATH '{made.directory.path}');"
        "CREATE SOURCE s (id BIGINT) IN CLUSTER main FROM QUEUE CONNECTION c (QUEUE 'orders')"
        " FORMAT JSON INCLUDE KEY AS k;"
        "CREATE SINK o IN CLUSTER main FROM s INTO QUEUE CONNECTION c (QUEUE 'sent') FORMAT JSON"
    )
    return made


class TestCreate:
    """Statements take its name and options, and its own questions are asked."""

    def test_what_is_made_is_shown_as_it_was_written(self, queues: Queues) -> None:
        """SHOW CREATE gives the statements back, a source without the columns of the place."""
        path = queues.directory.path
        assert queues.shown("SHOW CREATE CONNECTION c") == (
            f"CREATE CONNECTION default.c TO QUEUE ( PATH = '{path}' );"
        )
        source = queues.shown("SHOW CREATE SOURCE s")
        assert "FROM QUEUE CONNECTION default.c (QUEUE = 'orders')" in source
        assert "_offset" not in source
        assert "INTO QUEUE CONNECTION default.c (QUEUE = 'sent')" in queues.shown(
            "SHOW CREATE SINK o"
        )

    def test_show(self, queues: Queues) -> None:
        """The lists have it beside all others."""
        for what, row in (("CONNECTIONS", "c"), ("SOURCES", "s"), ("SINKS", "o")):
            (result,) = queues.run(f"SHOW {what}")
            assert result.rows is not None
            (found,) = result.rows.values
            assert row in str(found[0])
            assert "QUEUE" in found

    @pytest.mark.parametrize(
        ("options", "message"),
        [("PATH 'relative'", "option PATH: "), ("PATHS '/q'", "no option PATHS")],
    )
    def test_its_options_are_checked(self, queues: Queues, options: str, message: str) -> None:
        """Each rule of its table holds."""
        with pytest.raises(InvalidOptions) as caught:
            queues.run(f"CREATE CONNECTION d TO QUEUE ({options})")
        assert message in f"{caught.value} {caught.value.problems}"

    def test_its_server_is_asked(self, queues: Queues) -> None:
        """CREATE CONNECTION is refused by what its check finds."""
        with pytest.raises(ValidationFailed, match="no queues in"):
            queues.run(f"CREATE CONNECTION d TO QUEUE (PATH '{queues.place}/none')")

    def test_a_circle_is_refused(self, queues: Queues) -> None:
        """A sink does not write the queue that its source reads."""
        with pytest.raises(RefusedStatement, match="orders"):
            queues.run(
                "CREATE SINK back IN CLUSTER main FROM s INTO QUEUE CONNECTION c (QUEUE 'orders')"
            )

    def test_formats_are_those_of_its_table(self, queues: Queues) -> None:
        """FORMAT and INCLUDE that it does not have are refused."""
        with pytest.raises(CatalogMigrateError, match="no FORMAT CSV"):
            queues.run(
                "CREATE SOURCE t (id BIGINT) IN CLUSTER main FROM QUEUE CONNECTION c "
                "(QUEUE 'sent') FORMAT CSV"
            )

    def test_validate(self, queues: Queues) -> None:
        """VALIDATE CONNECTION shows what its check says."""
        (result,) = queues.run("VALIDATE CONNECTION c")
        assert queues.directory.identity() in str(result)


class TestAlter:
    """ALTER CONNECTION reaches the source and the sink, as with ours."""

    def test_explain_lists_who_follows(self, queues: Queues) -> None:
        """EXPLAIN names both and changes nothing."""
        version = queues.state.version
        queues.queues("other")
        (result,) = queues.run(
            f"EXPLAIN ALTER CONNECTION c SET (PATH = '{queues.place}/other')"
        )
        assert "default.s" in result.summary
        assert "default.o" in result.summary
        assert queues.state.version == version

    def test_a_directory_that_moved(self, queues: Queues) -> None:
        """Under another path with the same id all goes on."""
        moved = queues.directory.path.rename(queues.place / "moved")
        queues.run(f"ALTER CONNECTION c SET (PATH = '{moved}')")
        found = dependencies.find(queues.state, "connection", "c").external
        assert found.options["PATH"] == str(moved)

    def test_a_dependent_is_asked(self, queues: Queues) -> None:
        """Where a queue is missing there, what reads it refuses the ALTER."""
        shutil.rmtree(queues.queues("other").path / "orders")
        with pytest.raises(ValidationFailed, match="there is no queue orders"):
            queues.run(f"ALTER CONNECTION c SET (PATH = '{queues.place}/other')")

    def test_another_directory(self, queues: Queues) -> None:
        """Under an id that positions are not of, the source refuses it; nothing changes."""
        queues.started({0: 0, 1: 0})
        queues.queues("other")
        version = queues.state.version
        with pytest.raises(CatalogMigrateError) as caught:
            queues.run(f"ALTER CONNECTION c SET (PATH = '{queues.place}/other')")
        assert "belongs to directory" in str(caught.value)
        assert queues.state.version == version

    def test_positions_without_a_codec_have_a_server(
        self, queues: Queues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another directory is noticed also where no codec reads the positions."""
        source = base.find_connector("QUEUE").source
        monkeypatch.setattr(source, "codec", None)
        spec = spec_of(queues.state, queues.source)
        assert ServerUpstreams().identify(spec).upstream == queues.directory.identity()
        monkeypatch.setattr(source, "has_server", False)
        assert ServerUpstreams().identify(spec).upstream == ""

    def test_a_dry_run_settles_nothing(
        self, queues: Queues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before the first batch a dry run does not ask which edit it will be: the query runs, and
        may write its first batch meanwhile."""
        def asked(_: Checkpoint) -> None:
            raise AssertionError("a dry run asks whether the checkpoint is settled")

        queues.directory.append("orders", 0, [(None, "{}")] * 3)
        cluster = dependencies.find(queues.state, "cluster", "main").item_id
        queues.put("cluster", cluster, ClusterRecord(unsafe=True))
        source = base.find_connector("QUEUE").source
        assert source is not None
        monkeypatch.setattr(type(source.codec), "write_initial", lambda *_: b"first")
        monkeypatch.setattr(Checkpoint, "settled_batch", asked)
        (result,) = queues.run("EXPLAIN ALTER SOURCE s UNSAFE INJECT OFFSETS ('orders:0' = 2)")
        assert "2" in result.summary

    def test_a_fixed_option(self, queues: Queues) -> None:
        """What its table fixes is refused, with its own reason."""
        with pytest.raises(CatalogMigrateError) as caught:
            queues.run("ALTER SOURCE s SET (QUEUE = 'sent')")
        assert "of one queue" in f"{caught.value} {getattr(caught.value, 'problems', '')}"

    def test_pause_and_resume(self, queues: Queues) -> None:
        """Both are of an item, whatever its connector."""
        queues.run("PAUSE SOURCE s")
        assert queues.state.holds
        queues.run("RESUME SOURCE s")
        assert not queues.state.holds


class TestWatched:
    """What is asked while a query runs, of each query alone: its connector shares no client."""

    def answers(self, queues: Queues) -> dict[str, Answered]:
        state = queues.state
        specs = [spec_of(state, each.item_id) for each in dependencies.queries(state)]
        groups = share_clients(state, specs)
        assert [len(group) for group in groups] == [1, 1]
        return {
            found: answer for group in groups
            for found, answer in ask_together(group, ServerUpstreams()).items()
        }

    def test_all_is_well(self, queues: Queues) -> None:
        """Findings, the directory's id and those of the queues."""
        queues.started({0: 0, 1: 0})
        findings, upstream, whole = self.answers(queues)[queues.source]
        assert all(each.ok for each in findings)
        assert upstream is not None
        assert upstream.upstream == queues.directory.identity()
        assert upstream.topics == {"orders": queues.directory.queue_id("orders")}
        assert whole

    def test_a_queue_that_is_gone(self, queues: Queues) -> None:
        """The directory still says who it is, so that the source is held for the queue."""
        shutil.rmtree(queues.directory.path / "orders")
        findings, upstream, whole = self.answers(queues)[queues.source]
        assert [each.code for each in findings] == [MISSING]
        assert upstream is not None
        assert upstream.topics == {}
        assert not whole

    def test_a_directory_that_is_gone(self, queues: Queues) -> None:
        """Expect no identity, and a finding that is not ok."""
        shutil.rmtree(queues.directory.path)
        findings, upstream, whole = self.answers(queues)[queues.source]
        assert not findings[0].ok
        assert upstream is None
        assert not whole


class TestUnsafe:
    """Positions of the operator's choice, by the codec and the survey of the connector."""

    @pytest.fixture(autouse=True)
    def _records(self, queues: Queues) -> None:
        for number, count in ((0, 10), (1, 4)):
            queues.directory.append("orders", number, [(None, "{}")] * count)
        queues.started({0: 6, 1: 4})

    def unsafe(self, queues: Queues, actions: str) -> Result:
        (result,) = queues.run(
            f"ALTER SOURCE s UNSAFE {actions} REASON 'test'", confirm=lambda _: True
        )
        return result

    def test_a_dry_run(self, queues: Queues) -> None:
        """EXPLAIN counts what would come twice or not at all, and changes nothing."""
        before = root(queues.checkpoint), queues.state.version
        (result,) = queues.run("EXPLAIN ALTER SOURCE s UNSAFE INJECT OFFSETS (TO latest)")
        assert "4" in result.summary
        assert (root(queues.checkpoint), queues.state.version) == before
        assert queues.positions == {0: 6, 1: 4}

    def test_from_the_beginning(self, queues: Queues) -> None:
        """RESET SPLITS goes to START."""
        self.unsafe(queues, "RESET SPLITS")
        assert queues.positions == {0: 0, 1: 0}

    def test_skip_forward(self, queues: Queues) -> None:
        """To the end, and one partition to a record; the line is as the reader writes it."""
        self.unsafe(queues, "INJECT OFFSETS ('orders:0' = 8)")
        assert queues.positions == {0: 8, 1: 4}
        self.unsafe(queues, "INJECT OFFSETS (TO latest)")
        assert queues.positions == {0: 10, 1: 4}
        latest = queues.checkpoint.latest_offsets
        assert latest is not None
        assert queues.checkpoint.entry(latest).sources[0] == '{"orders": {"0": 10, "1": 4}}'

    def test_by_time(self, queues: Queues) -> None:
        """To the first record at or after a moment: here all of them are younger."""
        self.unsafe(queues, "INJECT OFFSETS (TO 'timestamp 2026-01-31T00:00:00Z')")
        assert queues.positions == {0: 0, 1: 0}

    def test_what_is_not_there(self, queues: Queues) -> None:
        """Beyond the end is refused with what there is."""
        with pytest.raises(UnsafeBlocked) as caught:
            self.unsafe(queues, "INJECT OFFSETS ('orders:0' = 80)")
        assert "10" in f"{caught.value} {caught.value.problems}"
        assert queues.positions == {0: 6, 1: 4}

    def test_another_queue_needs_a_place(self, queues: Queues) -> None:
        """What its table marks as moving it is not changed without positions, and is with them."""
        with pytest.raises(UnsafeBlocked, match="and its positions mean nothing there"):
            self.unsafe(queues, "SET (QUEUE = 'sent')")
        queues.run("DROP SINK o")
        queues.run(
            "ALTER SOURCE s UNSAFE SET (QUEUE = 'sent'), RESET SPLITS"
            " WITH (ACCEPT NEW TOPIC = true) REASON 'test'", confirm=lambda _: True,
        )
        assert queues.positions == {0: 0}
        assert dependencies.find(queues.state, "source", "s").external.options["QUEUE"] == "sent"

    def test_of_a_queue_that_was_created_again(self, queues: Queues) -> None:
        """Its id is another, so RESET SPLITS puts the new id on record."""
        shutil.rmtree(queues.directory.path / "orders")
        queues.directory.create_queue("orders", 2)
        with pytest.raises(UnsafeBlocked, match="topics that are not those"):
            self.unsafe(queues, "RESET SPLITS")
        queues.run(
            "ALTER SOURCE s UNSAFE RESET SPLITS WITH (ACCEPT NEW TOPIC = true) REASON 'test'",
            confirm=lambda _: True,
        )
        assert queues.positions == {0: 0, 1: 0}
        topics = queues.state.streams[queues.source].topics
        assert topics == {"orders": queues.directory.queue_id("orders")}


class TestUninstalled:
    """Without the package its items stay as they are and wait; all others go on."""

    @pytest.fixture(autouse=True)
    def _without(self, queues: Queues, uninstall: Callable[[], None]) -> None:
        queues.run(f"CREATE CONNECTION f TO FILES (PATH '{queues.place}')")
        uninstall()

    def test_shown_as_before(self, queues: Queues) -> None:
        """The lists and SHOW CREATE need no connector."""
        assert "TO QUEUE" in queues.shown("SHOW CREATE CONNECTION c")
        source = queues.shown("SHOW CREATE SOURCE s")
        assert "FROM QUEUE" in source
        assert "_offset" not in source
        for what in ("CONNECTIONS", "SOURCES", "SINKS", "CLUSTERS"):
            queues.run(f"SHOW {what}")

    def test_what_an_override_holds_is_hidden(
        self, installed: Path, queues: Queues, uninstall: Callable[[], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Which options of a connection are secrets is not known without it: none is shown."""
        monkeypatch.syspath_prepend(str(installed))
        base._find.cache_clear()
        queues.started({0: 0, 1: 0})
        moved = queues.directory.path.rename(queues.place / "moved")
        queues.run(
            f"ALTER SOURCE s UNSAFE SET (PATH = '{moved}'), RESET SPLITS REASON 'test'",
            confirm=lambda _: True,
        )
        assert str(moved) in queues.shown("SHOW CREATE SOURCE s")
        uninstall()
        shown = queues.shown("SHOW CREATE SOURCE s")
        assert "PATH = '***'" in shown
        assert str(moved) not in shown

    def test_others_go_on(self, queues: Queues) -> None:
        """What has nothing to do with it is created, altered and dropped."""
        queues.run(
            "CREATE SOURCE g (id BIGINT) IN CLUSTER main FROM FILES CONNECTION f (PATH '.')"
            " FORMAT JSON;"
            "PAUSE SOURCE g; RESUME SOURCE g; DROP SOURCE g;"
            "ALTER CONNECTION f SET (FORMAT = 'csv'); DROP CONNECTION f"
        )

    def test_it_is_paused_and_dropped(self, queues: Queues) -> None:
        """What needs no connector works on its items."""
        queues.run("PAUSE SOURCE s; RESUME SOURCE s; DROP SINK o")

    @pytest.mark.parametrize(
        "text",
        ["ALTER CONNECTION c SET (PATH = '/q')", "VALIDATE CONNECTION c",
         "EXPLAIN ALTER CONNECTION c SET (PATH = '/q')",
         "ALTER SOURCE s SET (TRIGGER = '2 seconds')"],
    )
    def test_what_needs_it_says_what_to_install(self, queues: Queues, text: str) -> None:
        """A typed error with the package; nothing changes."""
        version = queues.state.version
        with pytest.raises((ConnectorMissing, ValidationFailed)) as caught:
            queues.run(text)
        assert "QUEUE is no type of connection that is installed here" in str(caught.value)
        assert "pip install catalog-migrate-queue" in str(caught.value)
        assert queues.state.version == version
