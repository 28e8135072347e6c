"""Tokens: what sqlglot's tokenizer gives, without what would swallow a statement."""

from __future__ import annotations

import pytest

from catalog_migrate.language.tokens import Untokenisable, has_lone_surrogate, tokenise


def kinds(text: str) -> list[tuple[str, str]]:
    """Kind and value of each token."""
    return [(token.kind, token.value) for token in tokenise(text)]


def test_words_are_upper_case_and_keep_their_text() -> None:
    """A word is compared in upper case; as a part of a name it keeps its case."""
    [token] = tokenise("Kafka")
    assert (token.kind, token.value, token.part) == ("word", "KAFKA", "Kafka")


def test_show_and_explain_swallow_nothing() -> None:
    """What follows a command of sqlglot's is tokens, not one text."""
    assert kinds("SHOW CREATE SOURCE s") == [
        ("word", "SHOW"), ("word", "CREATE"), ("word", "SOURCE"), ("word", "S"),
    ]
    assert kinds("EXPLAIN ORDER  BY") == [("word", "EXPLAIN"), ("word", "ORDER"), ("word", "BY")]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"say ""hi"""', 'say "hi"'),
        (r"'a\\b\n'", "a\\b\n"),
        (r"r'a\n'", r"a\n"),
        ("'a;--b'", "a;--b"),
        (r"'\ud83d\ude00'", "\N{GRINNING FACE}"),
        ("''", ""),
    ],
)
def test_strings_stand_for_what_spark_makes_of_them(literal: str, value: str) -> None:
    """Doubled quotes, escapes and raw strings are one token with the value they spell."""
    assert kinds(literal) == [("string", value)]


def test_strings_apart_are_two() -> None:
    """Only quotes without anything between them are a doubled quote."""
    assert kinds("'a' 'b'") == [("string", "a"), ("string", "b")]
    assert kinds("'a'\"b\"") == [("string", "a"), ("string", "b")]


def test_numbers_with_a_unit_are_one_word() -> None:
    """A duration is one bare word, a number keeps its text."""
    assert kinds("10s 1.50 1e3") == [("word", "10S"), ("number", "1.50"), ("number", "1e3")]


def test_places_are_offsets_of_the_source() -> None:
    """Start and end cut the token's text out of the source."""
    text = "/* c */ a.`b``c` -- d\n('x''y')"
    assert [text[t.start : t.end] for t in tokenise(text)] == [
        "a", ".", "`b``c`", "(", "'x''y'", ")",
    ]


@pytest.mark.parametrize("text", ["€", "\x00", "x'1F'"])
def test_what_no_statement_holds_is_kept_as_such(text: str) -> None:
    """Signs that are neither word nor punctuation do not end the reading."""
    assert [token.kind for token in tokenise(text)] == ["other"]


@pytest.mark.parametrize(
    ("text", "what", "offset"),
    [
        ("a 'b", "a string that never ends", 2),
        ("a `b", "a name that never ends", 2),
        ("a /* b /* c */", "a comment that never ends", 2),
    ],
)
def test_what_never_ends_is_reported_where_it_begins(text: str, what: str, offset: int) -> None:
    """An open string, name or comment has the place of its first sign."""
    with pytest.raises(Untokenisable) as caught:
        tokenise(text)
    assert (caught.value.message, caught.value.offset) == (what, offset)


def test_half_a_character_is_found() -> None:
    """A lone half of a surrogate pair is no text."""
    [token] = tokenise(r"'\ud83d'")
    assert has_lone_surrogate(token.value)
