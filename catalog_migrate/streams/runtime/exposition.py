"""What a runtime knows as metrics, in Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from catalog_migrate.streams.runtime.lag import Lag
from catalog_migrate.streams.runtime.observation import STATES, Observation, ObservedQuery
from catalog_migrate.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PREFIX = "catalog_migrate_"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


class Family(msgspec.Struct, frozen=True):
    """One metric: its name without the prefix, type, meaning and samples."""

    name: str
    type: Literal["gauge", "counter"]
    about: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterator[str]:
        """As it is written; a metric without samples is left out."""
        if not self.samples:
            return
        name = PREFIX + self.name
        yield f"# HELP {name} {_escape(self.about)}"
        yield f"# TYPE {name} {self.type}"
        for labels, value in self.samples:
            written = ",".join(
                f'{label}="{_escape(text, quoted=True)}"' for label, text in labels.items()
            )
            yield f"{name}{{{written}}} {_number(value)}" if written else f"{name} {_number(value)}"


def exposition(
    seen: Observation, *, cluster: str, started: float, lags: Mapping[str, Lag] | None = None
) -> str:
    """The metrics of the runtime of a cluster, whose process ``started`` then (seconds since 1970).

    ``lags`` has by item id what was measured of queries.
    """
    found = families(seen, cluster=cluster, started=started, lags=lags or {})
    return "".join(f"{line}\n" for family in found for line in family.lines())


def families(
    seen: Observation, *, cluster: str, started: float, lags: Mapping[str, Lag]
) -> tuple[Family, ...]:
    """Return every metric that there is; docs/operating-streams.md has the same list."""
    own = {"cluster": cluster}

    def one(value: float | None) -> tuple[Sample, ...]:
        return () if value is None else ((own, value),)

    def each(
        pick: Iterable[tuple[ObservedQuery, float | None]]
    ) -> tuple[Sample, ...]:
        return tuple((_labels(query), value) for query, value in pick if value is not None)

    def lag(name: str) -> tuple[Sample, ...]:
        return each(
            (query, _lag(query, lags.get(query.status.item_id, Lag()), name))
            for query in seen.queries
        )

    queries = seen.queries
    return (
        Family("runtime_info", "gauge", "The version of a runtime; always 1.",
               (({**own, "version": __version__}, 1),)),
        Family("runtime_start_time_seconds", "gauge", "When its process began.", one(started)),
        Family("runtime_healthy", "gauge", "Whether /healthz answers 200.",
               one(float(not seen.sick))),
        Family("runtime_ready", "gauge", "Whether /readyz answers 200.",
               one(float(not seen.unready))),
        Family("runtime_lease_age_seconds", "gauge",
               "Seconds since the lease of the cluster was renewed.", one(seen.lease_age)),
        Family("runtime_lease_epoch", "gauge",
               "The number of the lease; it rises with every runtime of the cluster.",
               one(seen.epoch)),
        Family("runtime_report_timestamp_seconds", "gauge",
               "When the runtime reported its queries last; what follows is of that time.",
               one(seen.reported)),
        Family("stream_state", "gauge", "1 for the state that a source or sink is in, else 0.",
               tuple(
                   ({**_labels(query), "state": state}, float(query.state == state))
                   for query in queries for state in STATES
               )),
        Family("stream_last_batch", "gauge", "The number of its newest batch.",
               each((query, query.batch) for query in queries)),
        Family("stream_last_batch_timestamp_seconds", "gauge",
               "When its newest batch began, of those since the runtime has it.",
               each((query, query.batch_at) for query in queries)),
        Family("stream_last_progress_timestamp_seconds", "gauge",
               "When it ran a batch or looked for data last.",
               each((query, query.progress_at) for query in queries)),
        Family("stream_rows_total", "counter", "Rows of its batches since its last start.",
               each((query, query.status.rows) for query in queries)),
        Family("stream_restarts_total", "counter",
               "Failures after which it was started again, since the runtime has it.",
               each((query, query.status.restarts) for query in queries)),
        Family("stream_holds", "gauge", "What holds it, by holder.",
               tuple(
                   ({**_labels(query), "holder": holder}, count)
                   for query in queries for holder, count in sorted(query.holds.items())
               )),
        Family("stream_lag_records", "gauge",
               "Records that are there and not read; of a sink rows that are not written.",
               lag("records")),
        Family("stream_lag_versions", "gauge",
               "Versions of its table with rows that a sink has not written.", lag("versions")),
        Family("stream_lag_bytes", "gauge",
               "Bytes of its server's log that a source on PostgreSQL has not read.",
               lag("bytes")),
        Family("stream_lag_seconds", "gauge",
               "Age of the oldest change that a source on PostgreSQL has not read.",
               lag("seconds")),
    )


def _labels(query: ObservedQuery) -> Labels:
    return {"kind": query.kind, "name": query.name, "cluster": query.cluster}


def _lag(query: ObservedQuery, measured: Lag, name: str) -> float | None:
    """One lag of a query: what it says itself goes before what was measured."""
    said = query.status.lag
    if said is not None and (name == "records" or (name == "versions" and said == 0)):
        return said if name == "records" or query.kind == "sink" else None
    found: float | None = getattr(measured, name)
    return found


def _escape(text: str, *, quoted: bool = False) -> str:
    """A text with what the format has escapes for."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    """A value as Go's ParseFloat reads it."""
    whole = float(value).is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(float(value))
