"""The contract of connectors as tests: subclass the suites, and give each the fixture ``upstream``.

::

    class TestQueue(ConnectorSuite):
        @pytest.fixture
        def upstream(self, tmp_path):
            return QueueUpstream(tmp_path)

:class:`ConnectorSuite` needs no Spark. :class:`SourceSuite` and :class:`SinkSuite` ask for a
fixture ``spark`` beside it: a local session. A capability that a connector does not have (sinks,
partitions, a ledger), and what its :class:`Upstream` has no hook for, is skipped, and the reason
names the promise.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest

from catalog_migrate.connectors.base import (
    Access,
    Batch,
    Connector,
    Identity,
    Sink,
    Source,
    find_connector,
)
from catalog_migrate.connectors.options import section_of
from catalog_migrate.connectors.positions import START, OffsetRange, PartitionCodec
from catalog_migrate.connectors.query import QuerySpec
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.values import Option, canonical_value
from catalog_migrate.errors import (
    CatalogMigrateError,
    ConnectionFailed,
    EngineFailure,
    InvalidOptions,
    LedgerMismatch,
    UnsafeBlocked,
)
from catalog_migrate.model.findings import Finding
from catalog_migrate.model.names import ItemName
from catalog_migrate.model.objects import Column, External

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 10.0
"""The timeout that methods are given."""

SLACK = 5.0
"""Seconds that a method may take beyond its timeout on a loaded machine."""

HASTE = 1.0
"""The timeout of calls to a server that does not answer."""

HASTE_SLACK = 3.0
"""Seconds beyond it."""

FAILURES = (ConnectionFailed, EngineFailure, InvalidOptions)
"""What calls raise of a server that cannot be used; a writer may raise any error of ours."""

Answer = TypeVar("Answer")

ID = (Column("id", "BIGINT"),)


class Upstream:
    """A server for one test, with something to read and something to write.

    - ``name``: the connector's.
    - ``connection``: effective options, secrets as
      :class:`~catalog_migrate.connectors.secrets.Secret`, with which it answers.
    - ``silent``: options with which nothing answers.
    - ``elsewhere``: options of another server, None where a test can have one only.
    - ``source``, ``sink``: definitions with canonical options of what is there; None where the
      connector has none. ``missing_source`` and ``missing_sink`` name what is not there.

    Hooks, each for one promise, which is skipped without it:

    - ``moved``: options that lead to the same server by another address.
    - ``another_kind``: options that lead to what is no such server: another protocol, another file.
    - ``loop``: a sink that writes what ``source`` reads.
    - ``keyed_sink``: ``sink`` with KEY (id), for :meth:`fetch_keys`.
    - the methods that skip by themselves.
    """

    name: str
    connection: Resolved
    silent: Resolved
    elsewhere: Resolved | None = None
    source: External | None = None
    sink: External | None = None
    missing_source: External | None = None
    missing_sink: External | None = None
    moved: Resolved | None = None
    another_kind: Resolved | None = None
    loop: External | None = None
    keyed_sink: External | None = None

    def send(self, ids: Iterable[int]) -> None:
        """Put a record ``{"id": n}`` for each where the source reads, in this order."""
        raise NotImplementedError

    def fetch(self) -> list[int]:
        """Return the ids that the sink has written, repeats included."""
        raise NotImplementedError

    def recreate(self) -> None:
        """Drop what the source reads, and create it again under its name."""
        pytest.skip("what is created again has another id: no hook recreate()")

    def purge(self) -> None:
        """Take the oldest records of the source away, as a retention does, and keep some."""
        pytest.skip("lost records are an error: no hook purge()")

    def hang(self) -> AbstractContextManager[Resolved]:
        """Yield options of a server that takes a call and does not answer it."""
        pytest.skip("every call ends within its timeout: no hook hang()")

    def list_everything(self) -> object:
        """Return what is on the server and at ``silent``, to be compared with itself later."""
        pytest.skip("checks write nothing: no hook list_everything()")

    def send_keyed(self, number: int, key: str) -> None:
        """Put one record as :meth:`send` does, with a key, and the present as its time."""
        del number, key
        pytest.skip("records have their key and time: no hook send_keyed()")

    def fetch_keys(self) -> list[tuple[object, int]]:
        """Return (key, id) of each record that the sink has written."""
        pytest.skip("a sink with KEY writes keys: no hook fetch_keys()")

    def spec(self, external: External, connection: Resolved | None = None) -> QuerySpec:
        """Return what a query on it is started from."""
        sinks = (self.sink, self.missing_sink, self.keyed_sink)
        kind = "sink" if external in sinks else "source"
        return QuerySpec(
            "i1", ItemName("default", "q"), kind, external, ID,  # type: ignore[arg-type]
            connection=self.connection if connection is None else connection,
            shard="", checkpoint="",
        )


class _Suite:
    @pytest.fixture
    def upstream(self) -> Upstream:
        """Return a server for one test."""
        raise NotImplementedError("give the suite a fixture `upstream`")

    @pytest.fixture
    def connector(self, upstream: Upstream) -> Connector:
        """Return the connector, found as statements find it."""
        return find_connector(upstream.name)

    @pytest.fixture
    def source(self, connector: Connector) -> Source:
        """Return what its sources do."""
        if connector.source is None:
            pytest.skip(f"{connector.name} has no sources")
        return connector.source

    @pytest.fixture
    def sink(self, connector: Connector) -> Sink:
        """Return what its sinks do."""
        if connector.sink is None:
            pytest.skip(f"{connector.name} has no sinks")
        return connector.sink

    @pytest.fixture
    def codec(self, source: Source) -> PartitionCodec:
        """Return the codec of positions by partition."""
        if not source.section.records:
            pytest.skip("its sources have no partitions")
        assert isinstance(source.codec, PartitionCodec)
        return source.codec


class ConnectorSuite(_Suite):
    """Tables of options, questions, identity and positions; no Spark."""

    # -- the object ------------------------------------------------------------------------------

    def test_it_is_found_by_its_name(self, upstream: Upstream, connector: Connector) -> None:
        """Expect the entry point to have the name of the object, upper case, and a help."""
        assert connector.name == upstream.name == upstream.name.upper()
        assert find_connector(upstream.name.lower()) is connector
        assert connector.help

    def test_planning_may_read_it(self, upstream: Upstream) -> None:
        """Import neither pyspark nor deltalake when it is found."""
        program = (
            "import sys\nfrom catalog_migrate.connectors.base import find_connector\n"
            f"find_connector({upstream.name!r})\n"
            "print(*{'pyspark', 'deltalake'} & set(sys.modules))"
        )
        place = Path(sys.modules[type(find_connector(upstream.name)).__module__].__file__ or "")
        paths = [*sys.path, *map(str, place.parents)]
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:] = {paths!r}\n{program}"],
            check=True, capture_output=True, text=True,
        )
        assert done.stdout.split() == []

    def test_what_it_lacks_says_why(self, connector: Connector) -> None:
        """Expect a reason where there are no sources or no sinks."""
        if connector.source is not None and connector.sink is not None:
            pytest.skip("it has both")
        if connector.source is None:
            assert connector.without_source
            with pytest.raises(InvalidOptions):
                section_of(connector.name, "source")
        if connector.sink is None:
            assert connector.without_sink
            with pytest.raises(InvalidOptions):
                section_of(connector.name, "sink")

    # -- options ---------------------------------------------------------------------------------

    def test_each_option_is_documented(self, connector: Connector) -> None:
        """Expect help, and an example and a default that are valid and written in the one way."""
        for option in _options(connector):
            assert option.help, option.name
            if option.secret != "must":  # noqa: S105 - a rule
                canonical = canonical_value(option, option.example)
                assert canonical_value(option, canonical) == canonical, option.name
            if option.default is not None:
                assert canonical_value(option, option.default) == option.default, option.name

    def test_what_is_fixed_says_why(self, connector: Connector) -> None:
        """Expect a reason of each option that no ALTER may change."""
        for option in _options(connector):
            assert option.alterable or option.fixed_because, option.name

    def test_rules_name_options_that_there_are(self, connector: Connector) -> None:
        """Expect options of the same table, and choices that these have."""
        for name in ("connection", "source", "sink"):
            table = connector.section(name)
            for option in () if table is None else (*table.options, *table.settings):
                for when in (*option.required_when, *option.exclusive_with):
                    other = table.find(when.option) if table is not None else None
                    assert other is not None, (option.name, when.option)
                    assert not other.choices or set(when.values) <= set(other.choices)

    def test_every_query_has_a_trigger(self, connector: Connector) -> None:
        """Expect the setting TRIGGER of all queries, ON CHANGE of all sinks."""
        for name, wanted in (("source", {"TRIGGER"}), ("sink", {"TRIGGER", "ON CHANGE"})):
            table = connector.section(name)  # type: ignore[arg-type]
            if table is not None and not table.tables:
                assert wanted <= {each.name for each in table.settings}, name

    # -- questions -------------------------------------------------------------------------------

    def test_a_server_that_answers(self, connector: Connector, upstream: Upstream) -> None:
        """Expect at least one finding, and nothing wrong."""
        found = _in_time(lambda: connector.check(
            upstream.connection, subject="connection s.c", timeout=SECONDS
        ))
        assert found
        assert [each for each in found if not each.ok] == []
        _require_no_secret(upstream, map(str, found))

    def test_a_server_that_does_not_answer(self, connector: Connector, upstream: Upstream) -> None:
        """Expect an answer in time, with a remedy and without a secret; identify raises."""
        found = _in_time(lambda: _findings(lambda: connector.check(
            upstream.silent, subject="connection s.c", timeout=SECONDS
        )))
        bad = [each for each in found if not each.ok]
        assert bad
        assert all(each.remedy for each in bad), bad
        _require_no_secret(upstream, map(str, found))
        with pytest.raises(ConnectionFailed) as caught:
            _in_time(lambda: connector.identify(
                upstream.silent, subject="source s.q", timeout=SECONDS
            ))
        _require_no_secret(upstream, [str(caught.value)])

    def test_who_answers(self, connector: Connector, upstream: Upstream) -> None:
        """Expect the same id each time, another one elsewhere, and ids of what it names."""
        for external in filter(None, (upstream.source, upstream.sink)):
            names = connector.names(external)
            first, again = (self._identity(connector, upstream, names) for _ in range(2))
            assert first == again
            assert first.connector == connector.name
            assert first.cluster_id
            if connector.section("source") and connector.section("source").records:  # type: ignore[union-attr]
                assert names
                assert set(first.topic_ids) == set(names)
            if upstream.elsewhere is not None:
                other = connector.identify(
                    upstream.elsewhere, subject="source s.q", timeout=SECONDS
                )
                assert other.cluster_id != first.cluster_id

    def test_an_id_survives_a_move(self, connector: Connector, upstream: Upstream) -> None:
        """Expect the same ids by another address."""
        if upstream.moved is None:
            pytest.skip("an id survives a move: no hook moved")
        names = [
            name for external in (upstream.source, upstream.sink) if external is not None
            for name in connector.names(external)
        ]
        here, there = (
            connector.identify(options, names, subject="source s.q", timeout=SECONDS)
            for options in (upstream.connection, upstream.moved)
        )
        assert here == there

    @pytest.mark.parametrize("place", ["silent", "another_kind"])
    def test_only_errors_of_ours_come_out(
        self, connector: Connector, upstream: Upstream, place: str
    ) -> None:
        """Expect bad findings or one of FAILURES from each call, never the client library's own."""
        options = upstream.silent if place == "silent" else upstream.another_kind
        if options is None:
            pytest.skip("only errors of ours come out: no hook another_kind")
        for name, ask in _calls(connector, upstream, options, SECONDS):
            try:
                found = _in_time(ask)
            except FAILURES as error:
                _require_no_secret(upstream, [str(error)])
                continue
            assert isinstance(found, tuple), f"{name} went well"
            assert any(not each.ok for each in found), f"{name} found nothing wrong"

    def test_every_call_ends_in_time(self, connector: Connector, upstream: Upstream) -> None:
        """Expect each method with a timeout to end within it while the server does not answer."""
        with upstream.hang() as options:
            for name, ask in _calls(connector, upstream, options, HASTE, timed=True):
                begun = time.monotonic()
                try:
                    found = ask()
                except FAILURES:
                    pass
                else:
                    assert any(not each.ok for each in found), f"{name} found nothing wrong"
                assert time.monotonic() - begun < HASTE + HASTE_SLACK, f"{name} took too long"

    def test_a_check_writes_nothing(self, connector: Connector, upstream: Upstream) -> None:
        """Leave the server, and the place where there is none, as they were."""
        before = upstream.list_everything()
        for options in (upstream.connection, upstream.silent):
            for _, ask in _calls(connector, upstream, options, SECONDS, timed=True):
                _try(ask)
        for side, external in (
            (connector.source, upstream.missing_source), (connector.sink, upstream.missing_sink),
        ):
            if side is not None and external is not None:
                _try(partial(
                    side.check, upstream.connection, external, ID, subject="query s.q",
                    timeout=SECONDS,
                ))
        assert upstream.list_everything() == before

    def test_what_is_not_there_has_no_id(self, connector: Connector, upstream: Upstream) -> None:
        """Expect it to be left out, while the server answers."""
        if upstream.missing_source is None or not connector.names(upstream.missing_source):
            pytest.skip("its sources name nothing")
        names = connector.names(upstream.missing_source)
        found = self._identity(connector, upstream, names)
        assert found.cluster_id
        assert not set(found.topic_ids) & set(names)

    def test_created_again_is_another(
        self, connector: Connector, upstream: Upstream, codec: PartitionCodec
    ) -> None:
        """Expect another id of what has the name of an earlier one."""
        del codec
        assert upstream.source is not None
        names = connector.names(upstream.source)
        before = self._identity(connector, upstream, names)
        upstream.recreate()
        after = self._identity(connector, upstream, names)
        assert after.cluster_id == before.cluster_id
        assert all(after.topic_ids[name] != before.topic_ids[name] for name in names)

    def test_one_client_for_several(self, connector: Connector, upstream: Upstream) -> None:
        """Expect of ``access`` what ``identify`` and ``check`` answer, by subject."""
        if not connector.shares_client or upstream.source is None:
            pytest.skip("each query has a client of its own")
        assert upstream.missing_source is not None
        wanted = [
            Access("there", connector.names(upstream.source), "READ"),
            Access("missing", connector.names(upstream.missing_source), "READ"),
        ]
        identity, findings = connector.access(upstream.connection, wanted, timeout=SECONDS)
        assert identity is not None
        assert set(identity.topic_ids) == set(wanted[0].names)
        assert all(each.ok for each in findings["there"])
        assert not all(each.ok for each in findings["missing"])
        absent, findings = connector.access(upstream.silent, wanted, timeout=SECONDS)
        assert absent is None
        assert not any(each.ok for each in findings["there"])

    @pytest.mark.parametrize("kind", ["source", "sink"])
    def test_a_query_that_would_work(
        self, connector: Connector, upstream: Upstream, kind: str
    ) -> None:
        """Expect nothing wrong, and of what is not there an error with a remedy."""
        side = connector.source if kind == "source" else connector.sink
        there = upstream.source if kind == "source" else upstream.sink
        missing = upstream.missing_source if kind == "source" else upstream.missing_sink
        if side is None or there is None:
            pytest.skip(f"there is no {kind}")

        def check(external: External) -> Sequence[Finding]:
            return _in_time(lambda: _findings(lambda: side.check(
                upstream.connection, external, ID, subject=f"{kind} s.q", timeout=SECONDS
            )))

        assert [each for each in check(there) if not each.ok] == []
        assert list(side.problems(there, upstream.connection)) == []  # type: ignore[arg-type]
        if missing is not None:
            bad = [each for each in check(missing) if not each.ok]
            assert bad
            assert all(each.remedy for each in bad)

    def test_what_it_writes_to_has_a_name(self, sink: Sink, upstream: Upstream) -> None:
        """Expect a name for messages."""
        assert upstream.sink is not None
        assert sink.destination(upstream.sink)

    def test_what_is_read_and_written_is_told_apart(
        self, connector: Connector, upstream: Upstream
    ) -> None:
        """Expect pairs, of other things for the source than for the sink."""
        of = [
            set(connector.channels(upstream.connection, external))  # type: ignore[arg-type]
            for external in (upstream.source, upstream.sink) if external is not None
        ]
        assert all(len(pair) == 2 and all(pair) for found in of for pair in found)
        if len(of) == 2:
            assert not of[0] & of[1]

    def test_a_loop_is_seen(self, connector: Connector, upstream: Upstream) -> None:
        """Expect a common pair of a source and of the sink that writes what it reads."""
        if upstream.loop is None or upstream.source is None:
            pytest.skip("a sink that writes what its source reads is refused: no hook loop")
        read, written = (
            set(connector.channels(upstream.connection, external))  # type: ignore[arg-type]
            for external in (upstream.source, upstream.loop)
        )
        assert read & written

    # -- positions -------------------------------------------------------------------------------

    def test_what_upstream_holds(
        self, source: Source, codec: PartitionCodec, upstream: Upstream
    ) -> None:
        """Expect bounds that grow by what is sent, have the topics' ids, and are found by time."""
        assert upstream.source is not None
        spec = upstream.spec(upstream.source)
        with source.survey(spec, timeout=SECONDS) as before:
            sizes = {place: newest for place, (_, newest) in before.bounds.items()}
            assert before.cluster
            assert {topic for topic, _ in sizes} == set(before.topic_ids)
        upstream.send(range(7))
        with source.survey(spec, timeout=SECONDS) as after:
            assert sum(newest - sizes[place] for place, (_, newest) in after.bounds.items()) == 7
            assert after.topic_ids == before.topic_ids
            for place, (oldest, newest) in after.bounds.items():
                assert 0 <= oldest <= newest
                if oldest < newest:
                    assert after.at(0, [place])[place] == oldest
                assert after.at(1 << 42, [place])[place] is None
            ends = {place: newest for place, (_, newest) in after.bounds.items()}
            assert codec.check(ends, after.bounds) == ()
            beyond = {place: newest + 1 for place, newest in ends.items()}
            assert len(codec.check(beyond, after.bounds)) == len(ends)

    def test_the_survey_of_what_is_not_there(
        self, source: Source, codec: PartitionCodec, upstream: Upstream
    ) -> None:
        """Expect UnsafeBlocked of missing names, EngineFailure of a server that does not answer."""
        del codec
        if upstream.missing_source is None:
            pytest.skip("nothing is missing")
        with pytest.raises(UnsafeBlocked), source.survey(upstream.spec(upstream.missing_source)):
            pass
        assert upstream.source is not None
        silent = upstream.spec(upstream.source, upstream.silent)
        with pytest.raises(EngineFailure) as caught, source.survey(silent, timeout=SECONDS):
            pass
        _require_no_secret(upstream, [str(caught.value)])

    def test_positions_are_written_as_they_were_read(self, codec: PartitionCodec) -> None:
        """Expect a line that the codec has written to be read as it was, START too."""
        positions = {("a", 0): 0, ("a", 12): 2**62, ("b-1", 3): 7}
        line = codec.write(positions)
        assert codec.read(line) == positions
        assert codec.write(codec.read(line)) == line
        assert codec.read(START) is None
        assert codec.write(None) == START

    @staticmethod
    def _identity(connector: Connector, upstream: Upstream, names: Sequence[str]) -> Identity:
        return _in_time(lambda: connector.identify(
            upstream.connection, names, subject="source s.q", timeout=SECONDS, reads=True
        ))


class SourceSuite(_Suite):
    """What a source reads, on Spark."""

    def test_each_record_once_and_after_a_restart(
        self, spark: SparkSession, source: Source, upstream: Upstream, tmp_path: Path
    ) -> None:
        """Expect a stream that gives what was sent, goes on from its checkpoint, and writes its
        positions as the codec does."""
        assert upstream.source is not None
        spec = upstream.spec(upstream.source)
        run = _Run(spark, source, spec, tmp_path)
        upstream.send(range(5))
        assert sorted(run()) == list(range(5))
        upstream.send(range(5, 9))
        assert sorted(run()) == list(range(5, 9))
        assert run() == []
        if isinstance(source.codec, PartitionCodec):
            line = run.line
            positions = source.codec.read(line)
            assert source.codec.write(positions) == line
            with source.survey(spec) as contents:
                ends = {place: newest for place, (_, newest) in contents.bounds.items()}
            assert positions == ends

    def test_records_have_their_columns(
        self, spark: SparkSession, source: Source, codec: PartitionCodec, upstream: Upstream
    ) -> None:
        """Expect what FORMAT decodes: key, value and the place of each record."""
        del codec
        assert upstream.source is not None
        frame = source.reader(spark, upstream.spec(upstream.source))
        assert frame.isStreaming
        types = dict(frame.dtypes)
        wanted = {
            "key": "binary", "value": "binary", "topic": "string", "partition": "int",
            "offset": "bigint", "timestamp": "timestamp",
        }
        assert {name: types.get(name) for name in wanted} == wanted

    def test_exact_ranges(
        self, spark: SparkSession, source: Source, codec: PartitionCodec, upstream: Upstream
    ) -> None:
        """Expect every record of the ranges, no other; what is not there fails."""
        del codec
        assert upstream.source is not None
        spec = upstream.spec(upstream.source)
        upstream.send(range(20))
        with source.survey(spec) as contents:
            ranges = [
                OffsetRange(topic, number, newest - 2, newest)
                for (topic, number), (oldest, newest) in sorted(contents.bounds.items())
                if newest - oldest >= 3
            ]
        assert ranges
        rows = source.read_range(spark, spec, ranges).collect()
        assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == [
            (each.topic, each.partition, offset)
            for each in ranges for offset in range(each.first, each.until)
        ]
        assert source.read_range(spark, spec, []).collect() == []
        beyond = [each._replace(until=each.until + 1000) for each in ranges]
        with pytest.raises(Exception):  # noqa: B017, PT011 - Spark's, whatever it wraps
            source.read_range(spark, spec, beyond).collect()

    def test_lost_records_are_an_error(
        self, spark: SparkSession, source: Source, codec: PartitionCodec, upstream: Upstream,
        tmp_path: Path,
    ) -> None:
        """Fail at a position that upstream no longer has, and do not go on behind the gap."""
        del codec
        assert upstream.source is not None
        run = _Run(spark, source, upstream.spec(upstream.source), tmp_path)
        upstream.send(range(4))
        assert sorted(run()) == list(range(4))
        _send_apart(upstream, range(4, 16))
        upstream.purge()
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's, whatever it wraps
            run()
        assert not isinstance(caught.value, AssertionError), caught.value

    def test_a_start_at_the_end(
        self, spark: SparkSession, source: Source, codec: PartitionCodec, upstream: Upstream,
        tmp_path: Path,
    ) -> None:
        """Expect START 'latest' to read nothing that was there before the first start."""
        del codec
        if source.section.find("START") is None:
            pytest.skip("START 'latest' is honoured: its sources have no START")
        assert upstream.source is not None
        external = msgspec.structs.replace(
            upstream.source, options={**upstream.source.options, "START": "latest"}
        )
        upstream.send(range(5))
        run = _Run(spark, source, upstream.spec(external), tmp_path)
        assert run() == []
        upstream.send(range(5, 8))
        assert sorted(run()) == [5, 6, 7]

    def test_keys_and_times(
        self, spark: SparkSession, source: Source, codec: PartitionCodec, upstream: Upstream
    ) -> None:
        """Expect the key and the time that each record was sent with."""
        del codec
        assert upstream.source is not None
        spec = upstream.spec(upstream.source)
        begun = time.time()
        for number in range(3):
            upstream.send_keyed(number, f"key {number}")
        with source.survey(spec) as contents:
            ranges = [
                OffsetRange(topic, number, oldest, newest)
                for (topic, number), (oldest, newest) in sorted(contents.bounds.items())
                if oldest < newest
            ]
        rows = source.read_range(spark, spec, ranges).selectExpr(
            "CAST(key AS STRING) AS key",
            "CAST(get_json_object(CAST(value AS STRING), '$.id') AS INT) AS id",
            "unix_millis(timestamp) / 1000 AS at",
        ).collect()
        assert sorted((row["id"], row["key"]) for row in rows) == [
            (number, f"key {number}") for number in range(3)
        ]
        clocks = 60  # seconds that the server's clock may be ahead or behind
        assert all(begun - clocks < row["at"] < time.time() + clocks for row in rows)

    def test_ranges_that_are_lost(
        self, spark: SparkSession, source: Source, codec: PartitionCodec, upstream: Upstream
    ) -> None:
        """Fail for a range that upstream no longer has whole."""
        del codec
        assert upstream.source is not None
        spec = upstream.spec(upstream.source)
        _send_apart(upstream, range(12))
        with source.survey(spec) as contents:
            before = dict(contents.bounds)
        upstream.purge()
        with source.survey(spec) as contents:
            ranges = [
                OffsetRange(topic, number, before[topic, number][0], newest)
                for (topic, number), (oldest, newest) in sorted(contents.bounds.items())
                if before[topic, number][0] < oldest < newest
            ]
        assert ranges, "purge() took nothing away, or everything"
        for each in ranges:
            with pytest.raises(Exception):  # noqa: B017, PT011 - Spark's, whatever it wraps
                source.read_range(spark, spec, [each]).collect()


class SinkSuite(_Suite):
    """What a sink writes, on Spark."""

    @pytest.fixture
    def write(
        self, spark: SparkSession, sink: Sink, upstream: Upstream
    ) -> Callable[[Iterable[int], int, str], None]:
        """Write a batch of ids, with its number and query id, by a writer of its own."""
        assert upstream.sink is not None
        spec = upstream.spec(upstream.sink)

        def batch(ids: Iterable[int], number: int, query_id: str) -> None:
            frame = spark.createDataFrame([(each,) for each in ids], "id BIGINT")
            sink.writer(spark, spec).write(Batch(frame, number, query_id))

        return batch

    @pytest.fixture
    def query(self) -> str:
        """Return the id of a query that no server knows."""
        return str(uuid.uuid4())

    def test_every_row_arrives(
        self, upstream: Upstream, write: Callable[..., None], query: str
    ) -> None:
        """Write batch after batch, an empty one too."""
        write(range(3), 0, query)
        write((), 1, query)
        write(range(3, 5), 2, query)
        assert sorted(upstream.fetch()) == list(range(5))

    def test_keys(
        self, spark: SparkSession, sink: Sink, upstream: Upstream, query: str
    ) -> None:
        """Expect one key for one id, and another for another."""
        if upstream.keyed_sink is None:
            pytest.skip("a sink with KEY writes keys: no hook keyed_sink")
        frame = spark.createDataFrame([(1,), (2,), (1,)], "id BIGINT")
        sink.writer(spark, upstream.spec(upstream.keyed_sink)).write(Batch(frame, 0, query))
        found = upstream.fetch_keys()
        assert sorted(number for _, number in found) == [1, 1, 2]
        keys = {number: {key for key, each in found if each == number} for number in (1, 2)}
        assert all(len(each) == 1 and None not in each for each in keys.values()), keys
        assert keys[1] != keys[2]

    def test_a_write_that_fails(
        self, spark: SparkSession, sink: Sink, upstream: Upstream, query: str
    ) -> None:
        """Expect an error of ours, or Spark's of a writer that is Spark's own."""
        if upstream.missing_sink is None:
            pytest.skip("a write that fails raises an error of ours: no missing_sink")
        frame = spark.createDataFrame([(1,)], "id BIGINT")
        spec = upstream.spec(upstream.missing_sink)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at below
            sink.writer(spark, spec).write(Batch(frame, 0, query))
        of_spark = type(caught.value).__module__.partition(".")[0] in ("pyspark", "py4j")
        assert of_spark or isinstance(caught.value, CatalogMigrateError), repr(caught.value)
        _require_no_secret(upstream, [str(caught.value)])

    def test_a_batch_again(
        self, upstream: Upstream, sink: Sink, write: Callable[..., None], query: str
    ) -> None:
        """Expect its rows once with a ledger, which has its number; without, at least once."""
        write(range(3), 0, query)
        write(range(3, 5), 1, query)
        write(range(3, 5), 1, query)
        if not sink.ledger:
            assert set(upstream.fetch()) == set(range(5))
            return
        assert sorted(upstream.fetch()) == list(range(5))
        spec = self._spec(upstream)
        assert sink.last_batch(spec, query) == 1
        assert sink.last_batch(spec, str(uuid.uuid4())) is None

    def test_a_ledger_that_lacks_a_batch(
        self, upstream: Upstream, sink: Sink, write: Callable[..., None], query: str
    ) -> None:
        """Refuse a start behind a lagging replica, and one from an earlier checkpoint."""
        self._require_ledger(sink)
        spec = self._spec(upstream)
        for number in range(3):
            write((number,), number, query)
        sink.require_ledger(spec, query, 2)
        sink.require_ledger(spec, query, 1)
        for committed in (5, 0, None):
            with pytest.raises(LedgerMismatch):
                sink.require_ledger(spec, query, committed)

    def test_a_fence(
        self, upstream: Upstream, sink: Sink, write: Callable[..., None], query: str
    ) -> None:
        """Bar the old query id from writing; the new one goes on where that is."""
        self._require_ledger(sink)
        write(range(3), 0, query)
        new, spec = str(uuid.uuid4()), self._spec(upstream)
        assert sink.fence(spec, query, new) == 0
        with pytest.raises(CatalogMigrateError):
            write(range(3, 5), 1, query)
        write(range(3), 0, new)
        write(range(3, 5), 1, new)
        assert sorted(upstream.fetch()) == list(range(5))
        assert sink.fence(spec, query, new) == 0
        assert sink.last_batch(spec, new) == 1

    @staticmethod
    def _spec(upstream: Upstream) -> QuerySpec:
        assert upstream.sink is not None
        return upstream.spec(upstream.sink)

    @staticmethod
    def _require_ledger(sink: Sink) -> None:
        if not sink.ledger:
            pytest.skip("it keeps no ledger")


class _Run:
    """One query after another on a checkpoint, each until all that is there has been read."""

    def __init__(
        self, spark: SparkSession, source: Source, spec: QuerySpec, place: Path
    ) -> None:
        self.spark, self.source, self.spec, self.place = spark, source, spec, place

    def __call__(self) -> list[int]:
        found: list[int] = []

        def collect(frame: Any, _: int) -> None:
            records = self.source.section.records
            text = frame.selectExpr("CAST(value AS STRING) AS json") if records else frame
            found.extend(
                row[0] for row in (
                    text.selectExpr("CAST(get_json_object(json, '$.id') AS BIGINT)")
                    if records else text.select("id")
                ).collect()
            )

        frame = self.source.reader(self.spark, self.spec)
        query = (
            frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
            .option("checkpointLocation", str(self.place / "checkpoint")).start()
        )
        try:
            assert query.awaitTermination(120), "the query did not end"
        finally:
            query.stop()
        return found

    @property
    def line(self) -> str:
        """The newest position in its checkpoint."""
        entries = sorted(
            (each for each in (self.place / "checkpoint/offsets").iterdir() if each.name.isdigit()),
            key=lambda each: int(each.name),
        )
        return entries[-1].read_text().split("\n")[2]


def _calls(
    connector: Connector, upstream: Upstream, options: Resolved, timeout: float,
    *, timed: bool = False,
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each call to a server, by name; ``timed``: those that are given a timeout alone."""
    source, sink = connector.source, connector.sink
    yield "check", lambda: connector.check(options, subject="connection s.c", timeout=timeout)
    if upstream.source is not None or upstream.sink is not None:
        yield "identify", lambda: connector.identify(options, subject="q", timeout=timeout)
    for kind, side, external in (
        ("source", source, upstream.source), ("sink", sink, upstream.sink),
    ):
        if side is not None and external is not None:
            yield f"{kind}.check", partial(
                side.check, options, external, ID, subject="q", timeout=timeout
            )
    if source is not None and upstream.source is not None and source.section.records:
        yield "survey", lambda: _survey(source, upstream, options, timeout)
    if timed or sink is None or upstream.sink is None or not sink.ledger:
        return
    spec = upstream.spec(upstream.sink, options)
    yield "last_batch", lambda: sink.last_batch(spec, "q")
    yield "require_ledger", lambda: sink.require_ledger(spec, "q", 1)
    yield "fence", lambda: sink.fence(spec, "q", "r")


def _survey(source: Source, upstream: Upstream, options: Resolved, timeout: float) -> object:
    assert upstream.source is not None
    with source.survey(upstream.spec(upstream.source, options), timeout=timeout) as contents:
        return contents.cluster


def _try(ask: Callable[[], object]) -> None:
    """Call what may fail as it is allowed to."""
    try:
        ask()
    except FAILURES:
        return


def _send_apart(upstream: Upstream, ids: Iterable[int]) -> None:
    """Send records one by one, so that a server which forgets by the batch forgets a part."""
    for each in ids:
        upstream.send([each])


def _options(connector: Connector) -> Iterator[Option]:
    for name in ("connection", "source", "sink"):
        table = connector.section(name)
        if table is not None:
            yield from (*table.options, *table.settings)


def _findings(check: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    """What a check finds, also where it raises it."""
    try:
        return check()
    except ConnectionFailed as error:
        return tuple(error.findings)


def _in_time(ask: Callable[[], Answer]) -> Answer:
    """The answer, given within the timeout."""
    begun = time.monotonic()
    try:
        return ask()
    finally:
        assert time.monotonic() - begun < SECONDS + SLACK, "it took longer than its timeout"


def _require_no_secret(upstream: Upstream, texts: Iterable[str]) -> None:
    secrets = [
        each.reveal() for options in (upstream.connection, upstream.silent)
        for each in options.values() if isinstance(each, Secret)
    ]
    for text in texts:
        assert not any(secret in text for secret in secrets), "a message holds a secret"
