"""Random releases and chains of them: small, valid, with every decision that a migration needs.

A chain is a function of what its source of chance says: a seed, or choices that a test draws. Each
:class:`~tests.simulation.draft.DraftedRelease` says, beside its definitions, what becomes of
rows: its ``tables`` name every table and column by a number that lasts through renames, so that a
test can tell what a row must look like after any path through the chain. A name is never used for
two things in one chain, because skipping a release would make them one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.simulation.draft import Draft, DraftedRelease
from tests.simulation.mutations import MUTATIONS


def draft_chain(seed: int, length: int) -> tuple[DraftedRelease, ...]:
    """``length`` releases named ``1``, ``2``, …, each one to three mutations after the last."""
    random = Random(seed)
    names = list(MUTATIONS)
    draft = _first(random)
    chain = [draft.render("1", ())]
    for _ in range(1, length):
        chain.append(_next(draft, chain, random.sample(names, random.randint(1, 3))))
    return tuple(chain)


def chain_of(
    random: Random, mutations: Sequence[Sequence[str]], *, first: int | None = None
) -> tuple[DraftedRelease, ...]:
    """A first release and one more for each group of mutations, by their names.

    ``random`` answers what the names leave open: which table, which column, which schema. The first
    release is drawn from it too, or from the seed ``first``.
    """
    draft = _first(random if first is None else Random(first))
    draft.random = random
    chain = [draft.render("1", ())]
    for group in mutations:
        chain.append(_next(draft, chain, group))
    return tuple(chain)


def _first(random: Random) -> Draft:
    """One or two of each thing, or none of some."""
    draft = Draft(random)
    if random.random() < 0.3:
        draft.add_type()
    for _ in range(random.choice((1, 1, 2, 3))):
        table = draft.add_table()
        if random.random() < 0.15:
            table.checks[f"e{draft.number()}"] = f"{table.columns[0].name} > 0"
    if random.random() < 0.2:
        draft.add_table(derived=True)
    if random.random() < 0.5:
        draft.add_function()
    for _ in range(random.randint(1, 3)):
        draft.add_view()
    draft.started = True
    return draft


def _next(
    draft: Draft, chain: Sequence[DraftedRelease], mutations: Sequence[str]
) -> DraftedRelease:
    for name in mutations:
        MUTATIONS[name](draft)
        draft.settle()
    return draft.render(str(len(chain) + 1), tuple(mutations))
