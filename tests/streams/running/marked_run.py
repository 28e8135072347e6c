"""Everything that a password goes through.

Played on a session, or run as ``python marked_run.py DIRECTORY``, with every log at DEBUG into
files; ``setting.json`` there says where the servers are. The passwords come by the references in
the setting only. All that anybody could get to see is printed or written below DIRECTORY; who
started it searches that.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOG4J = """
status = error
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c: %m%n%ex
"""
PATIENCE = 240.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.3)


def logging_properties(directory: Path) -> Path:
    """What has a JVM log everything below a directory; made with its places."""
    logs = directory / "logs"
    (logs / "events").mkdir(parents=True)
    properties = logs / "log4j2.properties"
    properties.write_text(LOG4J.format(file=logs / "spark.log"))
    return properties


def session(directory: Path) -> Any:
    from catalog_migrate.engine.spark.session import local_session

    properties = logging_properties(directory)
    logs = properties.parent
    spark = local_session(
        warehouse_dir=str(directory / "spark-warehouse"),
        conf={
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={properties.as_uri()}",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (logs / "events").as_uri(),
            "spark.eventLog.compress": "false",
        },
    )
    # our own session asks for errors only
    spark.sparkContext.setLogLevel("DEBUG")
    return spark


class Run:
    """The statements, one after the other; what each says or raises is printed whole."""

    def __init__(self, directory: Path, spark: Any) -> None:
        from catalog_migrate.api import Catalog
        from catalog_migrate.catalog.opening import create_catalog, open_log

        self.directory, self.spark = directory, spark
        self.setting: dict[str, Any] = json.loads((directory / "setting.json").read_text())
        create_catalog(
            open_log(str(directory / "catalog")), warehouse=str(directory / "warehouse")
        )
        self.catalog = Catalog.open(directory / "catalog", mode="write")

    def say(self, sql: str, *, shown: str | None = None, **options: Any) -> list[Any]:
        print(">", sql if shown is None else shown)
        results = self.catalog.execute(sql, **options)
        print(*results, sep="\n")
        return results

    def refused(self, sql: str, *, shown: str | None = None, **options: Any) -> None:
        """A statement that must fail: its error is printed with the traceback."""
        try:
            self.say(sql, shown=shown, **options)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text is what counts
            traceback.print_exc(file=sys.stdout)
            print(repr(error), str(error), vars(error))
        else:
            raise SystemExit(f"was not refused: {shown or sql}")

    def declare(self) -> None:
        where = self.setting
        for name, reference in where["references"].items():
            self.say(f"CREATE SECRET {name} AS '{reference}'")
        self.say(
            f"CREATE CONNECTION c TO KAFKA (BROKER '{where['broker']}', SECURITY PROTOCOL "
            f"'SASL_PLAINTEXT', SASL MECHANISMS 'SCRAM-SHA-512', SASL USERNAME '{where['user']}', "
            "SASL PASSWORD SECRET kafka)"
        )
        self.say(
            f"CREATE CONNECTION t TO SSH TUNNEL (HOST '127.0.0.1', PORT {where['ssh_port']}, "
            f"USER tunnel, PRIVATE KEY SECRET ssh, HOST KEY '{where['host_key']}')"
        )
        self.say(
            f"CREATE CONNECTION d TO POSTGRES (HOST '127.0.0.1', PORT {where['port']}, DATABASE "
            f"'shop', USER '{where['user']}', PASSWORD SECRET postgres, SSL MODE 'disable', "
            "USING SSH TUNNEL t)"
        )
        self.say(
            f"CREATE CONNECTION o TO KAFKA (BROKER '{where['broker']}', SECURITY PROTOCOL "
            "'SASL_PLAINTEXT', SASL MECHANISMS 'OAUTHBEARER', OAUTH TOKEN ENDPOINT "
            f"'{where['tokens']}', OAUTH CLIENT ID 'app', OAUTH CLIENT SECRET SECRET client)"
        )
        self.say(
            f"CREATE SOURCE t (id BIGINT) FROM KAFKA CONNECTION o (TOPIC '{where['topic']}', START "
            f"OFFSETS ('{where['topic']}:0' = 0)) FORMAT JSON"
        )
        self.say(
            "CREATE SOURCE s (id BIGINT) FROM KAFKA CONNECTION c (TOPIC "
            f"'{where['topic']}') FORMAT JSON"
        )
        self.say(f"CREATE SINK k FROM s INTO KAFKA CONNECTION c (TOPIC '{where['out']}') "
                 "KEY (id) FORMAT JSON")
        self.say(f"CREATE SINK p FROM s INTO POSTGRES CONNECTION d (TABLE '{where['table']}')")
        self.say(
            f"CREATE SOURCE u FROM POSTGRES CONNECTION d (PUBLICATION '{where['publication']}', "
            f"TABLES ({where['table']} AS written)) FORMAT MIRROR"
        )

    def fail(self) -> None:
        """Each way in which a password can be wrong, misplaced or out of reach."""
        plain = os.environ["MARKED_PLAIN"].replace("\\", "\\\\").replace("'", "\\'")
        for text in (
            f"ALTER CONNECTION c SET (SASL PASSWORD '{plain}')",
            f"ALTER CONNECTION d SET (PASSWORD '{plain}')",
            f"ALTER CONNECTION o SET (OAUTH CLIENT SECRET '{plain}')",
            f"CREATE SECRET x AS '{plain}'",
        ):
            self.refused(text, shown=text.partition("'")[0])
        for text in (
            "ALTER CONNECTION c SET (SASL PASSWORD SECRET wrong)",
            "ALTER CONNECTION d SET (PASSWORD SECRET wrong)",
            "ALTER CONNECTION c SET (BROKER '127.0.0.1:1')",
            "ALTER CONNECTION o SET (OAUTH CLIENT SECRET SECRET wrong)",
            "ALTER CONNECTION o SET (OAUTH TOKEN ENDPOINT 'http://127.0.0.1:1/token')",
            "ALTER CONNECTION o SET (OAUTH CLIENT ID 'nobody')",
            "ALTER CONNECTION d SET (HOST 'no-such-host.invalid')",
            "ALTER CONNECTION d SET (SSL MODE 'require')",
            "CREATE CONNECTION e TO POSTGRES (USING CONNECTION d, DATABASE 'none')",
            "ALTER SECRET kafka AS 'env:NOT_THERE'",
            "ALTER CONNECTION t SET (PRIVATE KEY SECRET wrong)",
            "ALTER CONNECTION t SET (NEXT PRIVATE KEY SECRET again), SET (USER nobody)",
            "ALTER CONNECTION t SET (USER nobody)",
        ):
            self.refused(text)

    def set_back(self, runtime: Any) -> None:
        """Running queries fail on a wrong password, and are set back: the limit of the trial passes
        as soon as one has failed."""
        from catalog_migrate.operations.kinds import STARTED
        from tests.streams.running.skipping_clock import SkippingClock

        clock = runtime.supervisor.clock = SkippingClock()

        def failed() -> bool:
            phases = {row.detail.get("phase") for row in self.catalog.state().operations.values()}
            errors = [each.error for each in dict(runtime.supervisor.managed).values()]
            return STARTED in phases and any(errors)

        for connection, option in (("c", "SASL PASSWORD"), ("d", "PASSWORD")):
            with clock.skipping(PATIENCE, failed):
                self.refused(
                    f"ALTER CONNECTION {connection} SET ({option} SECRET wrong) "
                    "WITH (VALIDATE = false)", limit=PATIENCE,
                )

    def look(self, runtime: Any) -> None:
        """Everything that shows definitions, settings and plans."""
        for kind, name in (
            ("SECRET", "kafka"), ("CONNECTION", "c"), ("CONNECTION", "d"), ("CONNECTION", "o"),
            ("SOURCE", "s"), ("SOURCE", "u"),
            ("SINK", "k"), ("SINK", "p"),
        ):
            self.say(f"SHOW CREATE {kind} {name}")
        for what in ("SECRETS", "CONNECTIONS", "SOURCES", "SINKS", "OPERATIONS", "CLUSTERS"):
            self.say(f"SHOW {what}")
        self.say("EXPLAIN ALTER CONNECTION c SET (SASL PASSWORD SECRET again)")
        self.say("EXPLAIN ALTER CONNECTION c SET (SASL PASSWORD SECRET wrong)")
        self.say("VALIDATE CONNECTION c")
        self.say("VALIDATE CONNECTION o")
        for each in runtime.supervisor.managed.values():
            print(each)
            if each.query is not None:
                query = each.query._query
                query.explain(extended=True)
                print(query.status, query.lastProgress, query.recentProgress)
        engine = runtime.engine
        for some in (self.spark, engine._spark):
            print(some.sparkContext.getConf().getAll())
            print(some.sql("SET -v").collect())
            print(some.sql("SET").collect())

    def views(self) -> None:
        """The built-in views over the catalog, after a start of the software."""
        from catalog_migrate.hook import bootstrap

        release = self.directory / "release"
        release.mkdir()
        (release / "t.sql").write_text("CREATE TABLE shop.t (id BIGINT);")
        (release / "release.toml").write_text('name = "1"\n')
        print(bootstrap(self.spark, release=release, catalog=self.directory / "catalog"))
        for row in self.spark.sql("SHOW TABLES IN catalog_migrate").collect():
            print(row["tableName"], self.spark.table(f"catalog_migrate.{row['tableName']}")
                  .collect())

    def unpack(self) -> None:
        """The rows of every Delta table as text: in the files they are compressed."""
        out = self.directory / "unpacked"
        out.mkdir()
        for number, log in enumerate(sorted(self.directory.rglob("_delta_log"))):
            files = [str(file) for file in sorted(log.parent.glob("*.parquet"))]
            if files:
                found = self.spark.read.option("mergeSchema", "true").parquet(*files)
                rows = found.selectExpr("to_json(struct(*))").collect()
                (out / str(number)).write_text("\n".join(row[0] for row in rows))


def play(directory: Path, spark: Any) -> None:
    """The whole run on a session."""
    run = Run(directory, spark)
    run.declare()
    runtime = run.catalog.runtime(spark, on_event=print).start()

    def arrived() -> bool:
        managed = dict(runtime.supervisor.managed) if runtime.supervisor is not None else {}
        progress = [each.query.progress() if each.query is not None else None
                    for each in managed.values()]
        # what u reads is what p writes: in its snapshot, or behind it
        return len(progress) == 5 and None not in progress and sum(
            each.total_rows >= run.setting["rows"] for each in progress if each is not None
        ) >= 4

    try:
        until(arrived, "rows in all queries")
        run.look(runtime)
        run.fail()
        again = run.setting["references"]["again"]
        run.say(f"ALTER SECRET kafka AS '{again}'", limit=PATIENCE)
        run.set_back(runtime)
        run.look(runtime)
    finally:
        runtime.close()
    run.views()
    run.unpack()


def main() -> None:
    directory = Path(sys.argv[1])
    spark = session(directory)
    logging.basicConfig(level=logging.DEBUG, filename=directory / "logs" / "python.log")
    play(directory, spark)
    spark.stop()
    print("the end")


if __name__ == "__main__":
    main()
