"""Text to statements: exact values, exact errors, and no text that ends in another exception."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.errors import SyntaxProblem
from catalog_migrate.model.objects import Column, External, SecretRef
from catalog_migrate.sql.cursor import Cursor
from catalog_migrate.sql.parser import Parsed, parse, parse_one
from catalog_migrate.sql.statements import (
    RESERVED,
    AlterConnection,
    AlterItem,
    AlterSecret,
    Comment,
    CreateCluster,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    Drop,
    DropOptions,
    Explain,
    Pause,
    Rename,
    ResetOptions,
    Resume,
    SetConnection,
    SetOptions,
    Show,
    ShowCreate,
    ShowLog,
    Statement,
    ValidateConnection,
    ValidateSource,
)
from catalog_migrate.sql.tokens import tokenise

STATEMENTS: list[tuple[str, Statement]] = [
    ("create secret S as 'env:X'", CreateSecret("S", "env:X")),
    ("CREATE SECRET IF NOT EXISTS a.s AS 'file:/x'", CreateSecret("a.s", "file:/x", True)),
    ("CREATE SECRET s AS 'env:X' COMMENT 'why'", CreateSecret("s", "env:X", comment="why")),
    ("ALTER SECRET s", AlterSecret("s")),
    ("ALTER SECRET IF EXISTS s AS 'env:Y'", AlterSecret("s", "env:Y", True)),
    ("ALTER SECRET s WITH (VALIDATE = false)", AlterSecret("s", validate=False)),
    ("ALTER SECRET s AS 'env:Y' WITH (VALIDATE true)", AlterSecret("s", "env:Y", validate=True)),
    ("DROP SECRET s RESTRICT", Drop("secret", "s")),
    ("DROP SINK IF EXISTS `a b`.`c``d` CASCADE", Drop("sink", "`a b`.`c``d`", True, True)),
    (
        "CREATE CONNECTION c TO KAFKA (BROKER 'h:1', Security  protocol = SSL, n 5, m -1.5,"
        " sasl_password SECRET s, Kafka.Linger.ms = 10s, CLIENT SECRET = SECRET a.b)",
        CreateConnection(
            "c",
            External(
                connector="KAFKA",
                options={
                    "BROKER": "h:1", "SECURITY PROTOCOL": "SSL", "N": "5", "M": "-1.5",
                    "SASL PASSWORD": SecretRef("s"), "kafka.linger.ms": "10s",
                    "CLIENT SECRET": SecretRef("a.b"),
                },
            ),
        ),
    ),
    (
        "CREATE CONNECTION IF NOT EXISTS c TO postgres (using connection base, a b)"
        " WITH (VALIDATE = 'False') COMMENT 'x'",
        CreateConnection(
            "c", External(connector="POSTGRES", connection="base", options={"A": "b"}), True,
            False, "x",
        ),
    ),
    (
        "ALTER CONNECTION IF EXISTS c AS KAFKA SET (a = v, USING CONNECTION d.e, b SECRET s),"
        " DROP (x y, kafka.z), RESET (w) WITH (VALIDATE true)",
        AlterConnection(
            "c",
            (
                SetOptions({"A": "v", "USING CONNECTION": "d.e", "B": SecretRef("s")}),
                DropOptions(("X Y", "kafka.z")),
                ResetOptions(("W",)),
            ),
            True, "KAFKA", True,
        ),
    ),
    ("ALTER SOURCE s SET (a 1)", AlterItem("source", "s", (SetOptions({"A": "1"}),))),
    ("ALTER SINK IF EXISTS k DROP (a)", AlterItem("sink", "k", (DropOptions(("A",)),), True)),
    ("ALTER SOURCE s SET CONNECTION c2", SetConnection("source", "s", "c2")),
    ("ALTER CLUSTER a RENAME TO b.c", Rename("cluster", "a", "b.c")),
    ("SHOW CREATE SOURCE s.`t`", ShowCreate("source", "s.t")),
    ("SHOW operations", Show("operations")),
    ("SHOW SOURCE s.`t` LOG", ShowLog("source", "s.t")),
    ("SHOW SINK k LOG LIMIT 20", ShowLog("sink", "k", 20)),
    ("VALIDATE CONNECTION c", ValidateConnection("c")),
    ("VALIDATE SOURCE s.t", ValidateSource("s.t")),
    ("validate source s with (bucket_rows 500)", ValidateSource("s", {"BUCKET ROWS": "500"})),
    ("COMMENT ON CLUSTER c IS ''", Comment("cluster", "c", "")),
    ("COMMENT ON CLUSTER c IS NULL", Comment("cluster", "c", None)),
    ("CREATE CLUSTER IF NOT EXISTS c", CreateCluster("c", True)),
    ("PAUSE SINK k REASON 'r'", Pause("sink", "k", "r")),
    ("RESUME SOURCE s", Resume("source", "s")),
    ("EXPLAIN DROP CLUSTER c", Explain(Drop("cluster", "c"))),
    (
        "CREATE SOURCE s FROM FILES CONNECTION c (PATH 'x')",
        CreateSource(
            "s", (), External(connector="FILES", connection="c", options={"PATH": "x"})
        ),
    ),
    (
        "CREATE SOURCE IF NOT EXISTS s (key STRING, `a b` Struct<x: ARRAY<INT>, not: INT NOT NULL"
        " COMMENT 'a)b'> NOT NULL COMMENT 'c', d DECIMAL(10, 2), e shop.`money`)"
        " IN CLUSTER main FROM KAFKA CONNECTION c (TOPIC 't') WITH (max_offsets 5) COMMENT 'x'"
        " ON ERROR INTO a.dead INCLUDE KEY, OFFSET AS `o o` FORMAT json",
        CreateSource(
            "s",
            (
                Column("key", "STRING"),
                Column(
                    "a b", "Struct<x: ARRAY<INT>, not: INT NOT NULL COMMENT 'a)b'>",
                    nullable=False, comment="c",
                ),
                Column("d", "DECIMAL(10, 2)"),
                Column("e", "shop.`money`"),
            ),
            External(
                connector="KAFKA", connection="c", options={"TOPIC": "t"}, format="JSON",
                include={"KEY": "key", "OFFSET": "o o"}, dead_letters="a.dead", cluster="main",
                settings={"MAX OFFSETS": "5"},
            ),
            True, "x",
        ),
    ),
    (
        "CREATE SINK k IN CLUSTER m FROM a.t INTO POSTGRES CONNECTION c (TABLE 'o')"
        " ON ERROR INTO a.dead KEY (a, `b c`) ORDER BY (d) FORMAT JSON WITH (on_change = 'skip')",
        CreateSink(
            "k",
            External(
                connector="POSTGRES", connection="c", reads="a.t", options={"TABLE": "o"},
                key=("a", "b c"), order_by=("d",), format="JSON", cluster="m",
                settings={"ON CHANGE": "skip"}, dead_letters="a.dead",
            ),
        ),
    ),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS, ids=lambda value: str(value)[:30])
def test_values(text: str, statement: Statement) -> None:
    """Each statement is read into exactly its value."""
    assert parse_one(text) == statement


def test_several_statements_keep_their_places() -> None:
    """Statements are separated by semicolons; text and offset leave out comments around them."""
    text = ";; -- first\nSHOW SOURCES ; /* second; */ PAUSE SINK k REASON 'a;b';\n;"
    assert parse(text) == (
        Parsed(Show("sources"), 12, "SHOW SOURCES"),
        Parsed(Pause("sink", "k", "a;b"), text.index("PAUSE"), "PAUSE SINK k REASON 'a;b'"),
    )


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing", ";;", "/* a */;"])
def test_texts_without_a_statement(text: str) -> None:
    """Nothing is no statement, and where one is wanted, an error."""
    assert parse(text) == ()
    with pytest.raises(SyntaxProblem, match="found the end of the statement"):
        parse_one(text)


ERRORS = [
    (
        "ALTER CONNECTION main_broker      SETT (a = 1)",
        "line 1, column 35: expected SET, DROP, RESET, RENAME, ROTATE KEYS or AS, found"
        " 'SETT'; did you mean SET?",
    ),
    ("CREAT SOURCE s", "line 1, column 1: expected EXPLAIN, CREATE, ALTER, DROP, SHOW, VALIDATE,"
     " COMMENT, PAUSE or RESUME, found 'CREAT'; did you mean CREATE?"),
    ("EXPLAIN EXPLAIN SHOW SINKS", "line 1, column 9: expected CREATE, ALTER, DROP, SHOW,"
     " VALIDATE, COMMENT, PAUSE or RESUME, found 'EXPLAIN'"),
    ("CREATE OR REPLACE SOURCE s", "line 1, column 8: OR REPLACE has no meaning here"),
    ("DROP SOURCE IF", "line 1, column 15: expected EXISTS, found the end of the statement"),
    ("DROP SOURCE CASCADE", "line 1, column 13: expected IF EXISTS or the name of a source,"
     " found 'CASCADE'"),
    ("DROP SOURCE a.b.c", "line 1, column 16: a name has two parts"),
    ("DROP SOURCE s RESTRICTED", "line 1, column 15: expected RESTRICT, CASCADE or the end of the"
     " statement, found 'RESTRICTED'; did you mean RESTRICT?"),
    ("DROP TABLE t", "line 1, column 6: expected SECRET, CONNECTION, SOURCE, SINK or CLUSTER,"
     " found 'TABLE'"),
    ("CREATE SECRET s AS env", "line 1, column 20: expected a reference in quotes, found a word"
     " that is not shown"),
    ("CREATE SECRET s AS 'env:X", "line 1, column 20: a string that never ends"),
    ("CREATE CONNECTION c TO KAFA (a 1)", "line 1, column 24: expected KAFKA, POSTGRES, FILES,"
     " SCHEMA REGISTRY or SSH TUNNEL, found 'KAFA'; did you mean KAFKA?"),
    ("CREATE CONNECTION c TO KAFKA ()", "line 1, column 31: expected the name of an option,"
     " found ')'"),
    ("CREATE CONNECTION c TO KAFKA (a = 1, b, c 2)", "line 1, column 39: expected `=`, a value or"
     " SECRET, found ','"),
    ("CREATE CONNECTION c TO KAFKA (a_b 1,\n  c 2,\n  A b = 3)", "line 3, column 3: A B is given"
     " twice"),
    ("CREATE CONNECTION c TO KAFKA (a = host:9092)", "line 1, column 39: expected `,` or `)`,"
     " found ':'"),
    ("CREATE CONNECTION c TO KAFKA (a = -x)", "line 1, column 36: expected a number, found 'x'"),
    ("CREATE CONNECTION c TO KAFKA (a SECRET)", "line 1, column 39: expected the name of a secret,"
     " found ')'"),
    ("CREATE CONNECTION c TO KAFKA (USING CONNECTION a, USING CONNECTION b)",
     "line 1, column 51: USING CONNECTION is given twice"),
    ("CREATE CONNECTION c TO KAFKA (a 1) WITH (VALIDAT = true)", "line 1, column 42: expected"
     " VALIDATE, found 'VALIDAT'; did you mean VALIDATE?"),
    ("CREATE CONNECTION c TO KAFKA (a 1) WITH (VALIDATE = 1)", "line 1, column 53: expected TRUE"
     " or FALSE, found '1'"),
    ("CREATE CONNECTION c TO KAFKA (a 1) COMMENT 'a' COMMENT 'b'", "line 1, column 48: COMMENT is"
     " given twice"),
    ("ALTER CONNECTION c SET (a = 1) DROP (b)", "line 1, column 32: expected `,`, WITH or the end"
     " of the statement, found 'DROP'"),
    ("ALTER CONNECTION c DROP (a, A)", "line 1, column 29: A is given twice"),
    ("ALTER CONNECTION c RESET (a = 1)", "line 1, column 29: expected `,` or `)`, found '='"),
    ("ALTER SECRET s SET (a = 1)", "line 1, column 16: expected AS, RENAME, WITH or the end of"
     " the statement, found 'SET'"),
    ("ALTER SECRET s AS 'env:X' WITH (VALIDAT = false)", "line 1, column 33: expected VALIDATE,"
     " found 'VALIDAT'; did you mean VALIDATE?"),
    ("ALTER CLUSTER c", "line 1, column 16: expected RENAME, found the end of the statement"),
    ("CREATE SOURCE s (a) FROM KAFKA", "line 1, column 19: expected the type of the column,"
     " found ')'"),
    ("CREATE SOURCE s (a ARRAY<INT) FROM KAFKA", "line 1, column 29: expected `>`, found ')'"),
    ("CREATE SOURCE s (a INT NOT) FROM KAFKA", "line 1, column 27: expected NULL, found ')'"),
    ("CREATE SOURCE s FROM POSTGRES CONNECTION c (PUBLICATION p, TABLE (a))", "line 1, column 60:"
     " TABLE names one table of a sink"),
    ("CREATE SOURCE s FROM KAFKA CONNECTION c (TOPIC 't') FORMAT", "line 1, column 59: expected a"
     " format such as JSON, TEXT or BYTES, found the end of the statement"),
    ("CREATE SOURCE s FROM KAFKA CONNECTION c (TOPIC 't') INCLUDE KEY, KEY", "line 1, column 66:"
     " KEY is included twice"),
    ("CREATE SOURCE s FROM KAFKA CONNECTION c (TOPIC 't') WITH (a SECRET s)", "line 1, column 59:"
     " A takes no secret"),
    ("CREATE SINK k FROM t INTO KAFKA CONNECTION c (TOPIC 't') ORDER BY (a)", "line 1, column 58:"
     " expected KEY, FORMAT, ON, COMMENT, PAUSED, WITH or the end of the statement, found 'ORDER'"),
    ("PAUSE CONNECTION c", "line 1, column 7: expected SOURCE or SINK, found 'CONNECTION'"),
    ("COMMENT ON SOURCE s IS 5", "line 1, column 24: expected NULL or a comment in quotes,"
     " found '5'"),
    ("COMMENT ON SOURCE s IS '\\ud800'", "line 1, column 24: this text holds half a character"),
    ("DROP SOURCE `\ud800`", "line 1, column 13: this is no name"),
    ("SHOW SINKS x", "line 1, column 12: expected the end of the statement, found 'x'"),
    ("SHOW\x00", "line 1, column 5: expected CREATE, SOURCES, SINKS, CONNECTIONS, CLUSTERS,"
     " OPERATIONS, SECRETS, SOURCE or SINK, found '\\x00'"),
    ("SHOW SOURCE", "line 1, column 12: expected the name of a source (SHOW SOURCES lists"
     " them), found the end of the statement"),
    ("SHOW SOURCE s", "line 1, column 14: expected LOG, found the end of the statement"),
    ("SHOW SINK k LOG LIMIT 1.5", "line 1, column 23: expected a number of rows, found '1.5'"),
    ("SHOW SINK k LOG 5", "line 1, column 17: expected LIMIT or the end of the statement,"
     " found '5'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[text[:30] for text, _ in ERRORS])
def test_errors(text: str, message: str) -> None:
    """Each error has its place, what could stand there, what does, and the word meant."""
    with pytest.raises(SyntaxProblem) as caught:
        parse(text)
    assert caught.value.message == message


def test_a_second_statement_where_one_is_wanted() -> None:
    """The error has the place of the second statement."""
    with pytest.raises(SyntaxProblem) as caught:
        parse_one("SHOW SINKS;\nSHOW SOURCES")
    assert caught.value.message == "line 2, column 1: only one statement can stand here"


def test_an_error_shows_its_line_and_masks_what_is_quoted() -> None:
    """The caret stands under the place; what is in quotes may be a password and is not shown."""
    with pytest.raises(SyntaxProblem) as caught:
        parse("ALTER CONNECTION c\n\tSET (PASSWORD 'hunter2' USER 'me')\n")
    assert str(caught.value) == (
        "CM0700: line 2, column 26: expected `)` or `,`, found 'USER'\n"
        "    \tSET (PASSWORD '*******' USER '**')\n"
        "    \t                        ^"
    )


def test_an_open_quote_masks_all_behind_it() -> None:
    """Where a quote is missing, nothing from the first quote of the text on is shown."""
    with pytest.raises(SyntaxProblem) as caught:
        parse("CREATE CONNECTION c TO KAFKA (PASSWORD 'a'hunter2')")
    assert caught.value.message == "line 1, column 50: a string that never ends"
    assert caught.value.source_line == "CREATE CONNECTION c TO KAFKA (PASSWORD '***********"


def test_the_caret_stands_right_behind_wide_characters() -> None:
    """Characters of two cells move the caret by two."""
    with pytest.raises(SyntaxProblem) as caught:
        parse("DROP SOURCE 日本 x")
    assert caught.value.caret == " " * 17 + "^"


def test_a_long_line_is_cut_around_the_place() -> None:
    """Of a long line a window is shown, and the caret is in it."""
    with pytest.raises(SyntaxProblem) as caught:
        parse(f"ALTER CONNECTION c DROP ({', '.join(f'a{n}' for n in range(60))}, ; x)")
    error = caught.value
    assert len(error.source_line) <= 102
    assert error.source_line[len(error.caret) - 1 :].startswith(" ; x)")


def test_an_error_survives_pickling() -> None:
    """All that an error says is there in another process."""
    with pytest.raises(SyntaxProblem) as caught:
        parse("SHOW SINCS")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert (copy.line, copy.column, copy.nearest) == (1, 6, "SINKS")
    assert copy.expected[:3] == ("CREATE", "SOURCES", "SINKS")


def _parse_or_place(text: str) -> tuple[Parsed, ...] | None:
    """What ``text`` is; an error must have a place inside the text."""
    try:
        return parse(text)
    except SyntaxProblem as error:
        problem = error
    lines = re.split("\r\n|\r|\n", text)
    assert 1 <= problem.line <= len(lines)
    assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
    assert problem.caret.endswith("^")
    return None


def test_statements_cut_off_anywhere(examples: tuple[Parsed, ...]) -> None:
    """A statement cut off behind any token or inside one is complete or an error with a place."""
    for text in [*(example.text for example in examples), *(text for text, _ in STATEMENTS)]:
        for token in tokenise(text):
            for end in {token.start + 1, token.end - 1, token.end}:
                _parse_or_place(text[:end])


def test_statements_without_one_token(examples: tuple[Parsed, ...]) -> None:
    """A statement that lacks a token, or has one twice, is complete or an error with a place."""
    for text in [*(example.text for example in examples), *(text for text, _ in STATEMENTS)]:
        for token in tokenise(text):
            _parse_or_place(text[: token.start] + text[token.end :])
            _parse_or_place(f"{text[: token.end]} {text[token.start :]}")


WORDS = sorted(
    {token.text for text, _ in STATEMENTS for token in tokenise(text)} | RESERVED | {";", "'", "`"}
)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_row_of_words(text: str) -> None:
    """Words of the language in any order are statements or an error with a place."""
    _parse_or_place(text)


@given(st.text(st.characters(), max_size=30), st.sampled_from(STATEMENTS), st.data())
def test_any_text(noise: str, known: tuple[str, Statement], data: st.DataObject) -> None:
    """Any characters, also inside a statement, are statements or an error with a place."""
    _parse_or_place(noise)
    at = data.draw(st.integers(0, len(known[0])))
    _parse_or_place(known[0][:at] + noise + known[0][at:])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("CREATE SECRET s AS hunter2", "CREATE SECRET s AS *******"),
        ("CREATE SECRET s AS 'a' hunter2", "CREATE SECRET s AS '*' *******"),
        ("EXPLAIN CREATE SECRET s AS hunter2", "EXPLAIN CREATE SECRET s AS *******"),
        ("DROP SOURCE a; ALTER SECRET IF EXISTS s AS\nhunter2 b", "******* *"),
        ("ALTER SECRET s AS hunter2 WITH (VALIDATE = false)",
         "ALTER SECRET s AS ******* **** ********* * ******"),
    ],
)
def test_what_stands_for_a_secret_is_masked_without_quotes_too(text: str, line: str) -> None:
    """Neither the line nor the message has the word; the remedy is to quote a reference."""
    with pytest.raises(SyntaxProblem) as caught:
        parse(text)
    assert caught.value.source_line == line
    assert "hunter2" not in str(caught.value)
    assert caught.value.message.endswith("found a word that is not shown")


def test_bytes_in_quotes_are_masked_as_texts_are() -> None:
    """A password behind X is no value, and is not shown."""
    with pytest.raises(SyntaxProblem) as caught:
        parse("ALTER CONNECTION c SET (SASL PASSWORD X'hunter2') x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["2d", "5s", "1L"])
def test_a_name_may_begin_with_a_digit(name: str) -> None:
    """Though the lexer takes it for a number with a suffix."""
    assert parse_one(f"CREATE CLUSTER {name}") == CreateCluster(f"`{name}`")
    with pytest.raises(SyntaxProblem, match="the name of a cluster, found '10'"):
        parse_one("CREATE CLUSTER 10")


@pytest.mark.parametrize("name", ["s", "secret"])
def test_an_option_that_is_a_secret_hides_nothing_else(name: str) -> None:
    """Behind AS of an INCLUDE a mistake is told with the word that was meant."""
    with pytest.raises(SyntaxProblem) as caught:
        parse(
            f"CREATE SOURCE {name} (id INT) FROM KAFKA CONNECTION c\n"
            "(SASL PASSWORD SECRET pw) INCLUDE OFFSET AS off, TIMESTAM AS k"
        )
    assert caught.value.nearest == "TIMESTAMP"
    assert caught.value.found == "'TIMESTAM'"
    assert caught.value.source_line.endswith("SECRET pw) INCLUDE OFFSET AS off, TIMESTAM AS k")


def test_a_choice_of_several_words() -> None:
    """A key of two words is taken as a whole; half of it is no choice, and the error names it."""
    table = {"KAFKA": 1, "SSH TUNNEL": 2}

    def chosen(text: str) -> tuple[int, bool]:
        cursor = Cursor(text, tokenise(text))
        return cursor.choose(table), cursor.ended

    assert chosen("ssh  Tunnel") == (2, True)
    assert chosen("kafka") == (1, True)
    with pytest.raises(Exception, match="expected KAFKA or SSH TUNNEL, found 'ssh'"):
        chosen("ssh tunnels")
