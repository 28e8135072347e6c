"""``python -m bench [--only NAME] [--out FILE]``: measure, print, and write the page.

NAME is one of :data:`GROUPS`. Exit code 1 when a target
is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import page
from bench.measure import Measure

GROUPS = (
    # one JVM serves all groups with the jars of its first session: those for S3 come first
    "version", "plan", "large", "history", "s3", "spark", "simulation", "streams",
    "postgres", "unsafe", "many", "users", "report",
)


def measures(group: str, directory: Path) -> Iterator[Measure]:
    """The measures of one group, each as soon as it is there."""
    if group == "version":
        from bench.processes import version

        yield version()
    elif group == "plan":
        from bench import planning

        yield from planning.measures(directory)
    elif group == "spark":
        from bench.spark import measures as in_session

        yield from in_session(directory)
    elif group == "s3":
        from bench import s3

        yield from s3.measures(directory)
    elif group == "large":
        from bench import large

        yield from large.measures(directory)
    elif group == "history":
        from bench import histories

        yield from histories.measures(directory)
    elif group == "unsafe":
        from bench import unsafe

        yield from unsafe.measures(directory)
    elif group == "postgres":
        from bench import postgres

        yield from postgres.measures(directory)
    elif group == "many":
        from bench import many

        yield from many.measures(directory)
    elif group == "users":
        from bench import users

        yield from users.measures(directory)
    elif group == "report":
        from bench import picture, report

        yield from picture.measures()
        yield from report.measures(directory)
    elif group == "streams":
        from bench import streams

        yield from streams.measures(directory)
    else:
        from bench import simulation

        yield from simulation.measures()


def main() -> int:
    """Measure what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append", help="only this group")
    parser.add_argument(
        "--out", type=Path,
        help="write the page to this file as well; with --only, its rows of that group",
    )
    options = parser.parse_args()
    done: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="catalog-migrate-bench-") as directory:
        for group in options.only or GROUPS:
            for measure in measures(group, Path(directory)):
                done.append(measure)
                print(page.line(measure), flush=True)
    if options.out is not None:
        alone = options.only and options.out.exists()
        text = page.renewed(options.out.read_text("utf-8"), done) if alone else page.render(done)
        options.out.write_text(text, encoding="utf-8")
    missed = [measure.name for measure in done if not measure.met]
    for name in missed:
        print(f"target missed: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
