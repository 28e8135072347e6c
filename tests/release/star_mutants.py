"""Queries that differ from one in a token, for tests of what tells queries apart."""

from __future__ import annotations

from collections.abc import Iterator

from catalog_migrate.sql.tokens import tokenise

OTHERS = ("id", "total", "name", "c", "2", "'b'", "<>", "-", "or", "not", "distinct", "left", ",")


def mutants(query: str) -> Iterator[str]:
    """The query without a token, with two of them swapped, and with another in one's place."""
    tokens = tokenise(query)
    for index, token in enumerate(tokens):
        yield f"{query[:token.start]} {query[token.end:]}"
        other = OTHERS[index * 7 % len(OTHERS)]
        if other != token.value:
            yield f"{query[:token.start]} {other} {query[token.end:]}"
        if index + 1 < len(tokens) and tokens[index + 1].value != token.value:
            following = tokens[index + 1]
            yield (
                f"{query[:token.start]} {following.text} {token.text} {query[following.end:]}"
            )
