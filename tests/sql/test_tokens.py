"""The lexer: what is a token, where it stands, and what strings stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.sql.tokens import (
    LineIndex,
    escape_doubled_quotes,
    has_lone_surrogate,
    split_statements,
    string_literal,
    string_value,
    tokenise,
)


def test_tokens_carry_their_place_and_leave_comments_out() -> None:
    """Comments and blanks are no tokens; each token knows its offsets."""
    sql = "SELECT a -- no\n/* nested /* too */ */ FROM `b``c`"
    assert [(token.kind, token.value, sql[token.start : token.end]) for token in tokenise(sql)] == [
        ("word", "select", "SELECT"),
        ("word", "a", "a"),
        ("word", "from", "FROM"),
        ("quoted", "b`c", "`b``c`"),
    ]


@pytest.mark.parametrize(
    ("sql", "texts"),
    [
        ("1L 1.5e-3 2BD 1b", ["1L", "1.5e-3", "2BD", "1b"]),
        ("'a;b' \"c\" r'\\' x'1F' 'it''s'", ["'a;b'", '"c"', "r'\\'", "x'1F'", "'it''s'"]),
        ("a<=>b::INT->c||d", ["a", "<=>", "b", "::", "INT", "->", "c", "||", "d"]),
        ("ARRAY<ARRAY<INT>>", ["ARRAY", "<", "ARRAY", "<", "INT", ">", ">"]),
        ("delta.${log}", ["delta", ".", "${log}"]),
        ("größe", ["größe"]),
    ],
)
def test_token_texts(sql: str, texts: list[str]) -> None:
    """Literals and operators of Spark SQL are one token each."""
    assert [token.text for token in tokenise(sql)] == texts


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("a 'b", "a string that never ends"),
        ("a `b", "a name that never ends"),
        ("a /* /* b */", "a comment that never ends"),
    ],
)
def test_unended_text_is_an_error_token(sql: str, message: str) -> None:
    """The lexer never fails: what does not end becomes an error token at its start."""
    last = tokenise(sql)[-1]
    assert (last.kind, last.value, last.start) == ("error", message, 2)


def test_line_index_counts_from_one() -> None:
    """Lines and columns are counted from 1."""
    index = LineIndex("ab\ncd\n")
    assert [index.place(offset) for offset in (0, 1, 3, 4)] == [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it''s'", "it's"), (r"'a\'b\n\\'", "a'b\n\\"), (r"r'a\n'", r"a\n"), ('"x""y"', 'x"y'),
        (r"'\u0041'", "A"), (r"'\101'", "A"), (r"'\%\q'", r"\%q"), (r"'it\'s'", "it's"),
        ('"say ""hi"""', 'say "hi"'), (r"'a\\b\n'", "a\\b\n"), ("'a;--b'", "a;--b"), ("''", ""),
        (r"'\ud83d\ude00'", "\N{GRINNING FACE}"),
    ],
)
def test_string_value(literal: str, value: str) -> None:
    """Escapes and doubled quotes mean what they mean in Spark."""
    assert string_value(literal) == value


@given(st.text())
def test_string_literal_round_trip(value: str) -> None:
    """A printed literal is one token and stands for the same text."""
    literal = string_literal(value)
    assert [token.text for token in tokenise(literal)] == [literal]
    assert string_value(literal) == value


@given(st.text(alphabet="aB1 '`\"/*-;.,()<>=\\\n$", max_size=40))
def test_any_text_is_tokenised(text: str) -> None:
    """Whatever the text, tokens ascend, do not overlap and lie within it."""
    position = 0
    for token in tokenise(text):
        assert position <= token.start < token.end <= len(text)
        assert token.text == text[token.start : token.end]
        position = token.end


def test_keywords_are_upper_case_and_names_keep_their_case() -> None:
    """A word is compared in upper case; as a part of a name it keeps its case."""
    [token] = tokenise("Kafka")
    assert (token.keyword, token.name) == ("KAFKA", "Kafka")
    assert [token.keyword for token in tokenise("`a` 'a' 1 ;")] == ["", "", "", ""]


def test_strings_apart_are_two() -> None:
    """Only quotes without anything between them are a doubled quote."""
    assert [token.text for token in tokenise("'a' 'b'")] == ["'a'", "'b'"]
    assert [token.text for token in tokenise("'a'\"b\"")] == ["'a'", '"b"']


def test_bytes_are_no_text() -> None:
    """``X'1F'`` is one token, but nothing that stands where a text is wanted."""
    assert [token.is_string for token in tokenise("x'1F' '1F' r'1F'")] == [False, True, True]


def test_half_a_character_is_found() -> None:
    """A lone half of a surrogate pair is no text."""
    assert has_lone_surrogate(string_value(r"'\ud83d'"))


def test_statements_are_split_at_semicolons_outside_of_quotes() -> None:
    """Empty statements are left out."""
    groups = split_statements(tokenise("; a 'x;y' ;; -- b;\nc"))
    assert [[token.text for token in group] for group in groups] == [["a", "'x;y'"], ["c"]]


@pytest.mark.parametrize(
    ("sql", "escaped"),
    [
        ("SELECT 'it''s'", r"SELECT 'it\'s'"),
        ('SELECT "a""b"', r'SELECT "a\"b"'),
        ("SELECT '''', ''", r"SELECT '\'', ''"),
        (r"SELECT '\\''\''''", r"SELECT '\\\'\'\''"),
        ("""SELECT "it''s", '""'""", """SELECT "it''s", '""'"""),
        ("""SELECT r'it''s', R"a""b" """, """SELECT r'it''s', R"a""b" """),
        ("SELECT `it''s` -- it''s\n/* it''s */", "SELECT `it''s` -- it''s\n/* it''s */"),
        ("SELECT 'a' 'b''c'", r"SELECT 'a' 'b\'c'"),
        ("SELECT 'never''ends", "SELECT 'never''ends"),
    ],
)
def test_a_doubled_quote_is_escaped_where_it_stands(sql: str, escaped: str) -> None:
    """Only within strings that know escapes; every character keeps its place."""
    assert escape_doubled_quotes(sql) == escaped
    assert len(escaped) == len(sql)


@given(st.text(alphabet="'\"\\a rxX\n-`", max_size=40))
def test_escaping_doubled_quotes_changes_no_value(sql: str) -> None:
    """Tokens and what strings stand for are the same afterwards; once is enough."""
    escaped = escape_doubled_quotes(sql)
    for old, new in zip(tokenise(sql), tokenise(escaped), strict=True):
        if old.is_string:
            assert (old.start, old.end) == (new.start, new.end)
            assert string_value(old.text) == string_value(new.text)
        else:
            assert old == new
    assert escape_doubled_quotes(escaped) == escaped
