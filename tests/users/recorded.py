"""What Spark's analyser made of the texts of the tests, kept so that most of them need no JVM.

``python -m tests.users.recorded`` asks Spark again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from catalog_migrate.engine.port import QueryAnalysis, QueryRequest
from catalog_migrate.model.objects import Column
from tests.users import meaning_cases, repair_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

PLANS = Path(__file__).parent / "analysed_plans.json"
ANALYSES = Path(__file__).parent / "analyses.json"


def read_plans() -> dict[str, list[str]]:
    """The plans of each case of ``meaning_cases``, on the old and on the new shapes."""
    return json.loads(PLANS.read_text())


class Recorded:
    """Answers requests as Spark did; KeyError for one that it was never asked."""

    def __init__(self) -> None:
        self._answers = json.loads(ANALYSES.read_text())

    def analyse(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        return [_analysis(self._answers[_key(each)]) for each in requests]


class Recording:
    """Has Spark answer, and keeps what it said."""

    def __init__(self, analyse: repair_cases.Analyse) -> None:
        self._analyse = analyse
        self.answers: dict[str, object] = {}

    def analyse(self, requests: Sequence[QueryRequest]) -> Sequence[QueryAnalysis]:
        answers = self._analyse(requests)
        for request, answer in zip(requests, answers, strict=True):
            columns = answer.columns and [[c.name, c.type, c.nullable] for c in answer.columns]
            kept = (columns, answer.condition, answer.missing, answer.place, answer.plan)
            self.answers[_key(request)] = kept
        return answers


def _analysis(kept: list) -> QueryAnalysis:
    columns, condition, missing, place, plan = kept
    return QueryAnalysis(
        None if columns is None else [Column(*each) for each in columns], condition, None, missing,
        None if place is None else (place[0], place[1]), plan,
    )


def _key(request: QueryRequest) -> str:
    parents = sorted(
        (str(name), None if columns is None else [(c.name, c.type) for c in columns])
        for name, columns in request.parents.items()
    )
    rest = msgspec.json.encode((request.arguments, request.scalar, request.plan))
    return sha256(f"{request.sql}\n{parents}\n{rest!r}".encode()).hexdigest()[:16]


def main() -> None:
    """Write what Spark says now."""
    from catalog_migrate.engine.spark.engine import SparkEngine
    from catalog_migrate.engine.spark.session import local_session

    engine = SparkEngine(local_session(kafka=False))
    plans = meaning_cases.plans_of(engine.analyse, meaning_cases.CASES)
    PLANS.write_text(json.dumps(plans, indent=0, sort_keys=True) + "\n")
    recording = Recording(engine.analyse)
    for case in repair_cases.CASES:
        repair_cases.repair(case, recording.analyse)
    ANALYSES.write_text(json.dumps(recording.answers, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
