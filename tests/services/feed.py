"""A producer that keeps writing numbered rows into a topic while the cluster moves and restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.services.process import ServiceFailed
from tests.services.records import Row, row_parts

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_FLUSH = 60.0


def json_row(number: int) -> Row:
    """Row ``number`` of a feed by default: key ``<number>``, value ``{"id": <number>}``."""
    return str(number), json.dumps({"id": number})


class Feed:
    """Writes rows 0, 1, 2, … at a steady rate from a thread of its own, each exactly once.

    ``settings`` gives librdkafka's settings whenever a connection is made anew, ``rate`` is in rows
    per second, ``row`` makes row ``n``. Rows that a stopped broker has not taken wait for its
    return. Start it with ``with``; leaving it stops it and waits until every row is taken.
    """

    def __init__(
        self,
        settings: Callable[[], dict[str, Any]],
        topic: str,
        *,
        rate: float = 50.0,
        row: Callable[[int], Row] = json_row,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._pause = 1.0 / rate
        self._row = row
        self._next = 0
        self._refusals: list[str] = []
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name=f"feed {topic}", daemon=True)

    @property
    def sent(self) -> int:
        """How many rows were written or wait to be: all numbers below it."""
        return self._next

    def start(self) -> None:
        """Begin to write."""
        self._producer = self._connect()
        self._thread.start()

    def stop(self) -> int:
        """Stop, wait until the broker has every row, and return how many there are.

        Raises :class:`ServiceFailed` when the broker refused one or does not take them in a minute.
        """
        self._end.set()
        self._thread.join()
        with self._lock:
            self._flush()
        if self._refusals:
            raise ServiceFailed(f"rows for {self.topic} were refused: {self._refusals[0]}")
        return self._next

    def hold(self) -> None:
        """Write nothing more until :meth:`resume`; returns when all rows so far are taken."""
        self._lock.acquire()
        try:
            self._flush()
        except BaseException:
            self._lock.release()
            raise
        self._producer = None

    def resume(self) -> None:
        """Go on after :meth:`hold`, with the settings of now."""
        self._producer = self._connect()
        self._lock.release()

    def __enter__(self) -> Feed:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self._end.set()
            self._thread.join()

    def _connect(self) -> Producer:
        from confluent_kafka import Producer

        return Producer(
            {
                **self._settings(),
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def _run(self) -> None:
        while not self._end.wait(self._pause):
            with self._lock:
                if self._producer is None:
                    continue
                key, value, headers = row_parts(self._row(self._next))
                self._producer.produce(
                    self.topic, value, key, headers=headers, on_delivery=self._delivered
                )
                self._producer.poll(0)
                self._next += 1

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._refusals.append(str(error))

    def _flush(self) -> None:
        left = 0 if self._producer is None else self._producer.flush(_FLUSH)
        if left:
            raise ServiceFailed(f"{left} rows for {self.topic} were not taken in {_FLUSH:.0f} s")
