"""Whether Spark can parse a query or an expression, told from its tokens.

The language of Spark 3.5 to 4.2 in one grammar, after ``SqlBaseParser.g4`` of Apache Spark; what
one of these accepts is accepted. Nearly every keyword of Spark is a name as well (``SELECT from
FROM t``), so every way to read a text is followed, not the likeliest one: :class:`_Reading` holds
for each rule and place all places where it can end. Precedence plays no part, no tree is built.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from catalog_migrate.sql.tokens import Token, end_token, tokenise

GRAMMAR = r"""
query      = [WITH [RECURSIVE] cte,] term {set_op term} order
cte        = name [names] [MAX RECURSION LEVEL number] [AS] '(' query ')'
set_op     = (UNION | EXCEPT | MINUS | SETMINUS | INTERSECT) [ALL | DISTINCT]
term       = (select | from {select_tail} | TABLE relation_name | values | '(' query ')')
             {'|>' pipe}
select     = selected [from] {view_of} [where] [group] [having] [qualify] [windows [qualify]]
select_tail = selected {view_of} [where] [group] [having] [qualify] [windows [qualify]] order
selected   = SELECT [ALL | DISTINCT] item, | transform
transform  = (SELECT TRANSFORM '(' [ALL | DISTINCT] expression, ')'
             | (MAP | REDUCE) [ALL | DISTINCT] expression,)
             [row_format] [RECORDWRITER string] USING string
             [AS ('(' (field, | name,) ')' | field, | name,)] [row_format] [RECORDREADER string]
row_format = ROW FORMAT (SERDE string [WITH SERDEPROPERTIES options]
             | DELIMITED {(FIELDS | COLLECTION ITEMS | MAP KEYS | LINES) TERMINATED BY string
                          | ESCAPED BY string | NULL DEFINED AS string})
order      = [ORDER BY sort,] [CLUSTER BY expression,] [DISTRIBUTE BY expression,] [SORT BY sort,]
             [windows] [LIMIT (ALL | expression)] [OFFSET expression]
sort       = expression [ASC | DESC] [NULLS (FIRST | LAST)]
item       = expression [[AS] (name | names)]
where      = WHERE expression
having     = HAVING expression
qualify    = QUALIFY expression
group      = GROUP BY group_item, [WITH (ROLLUP | CUBE) | GROUPING SETS '(' group_set, ')']
group_item = (ROLLUP | CUBE) '(' group_set, ')' | GROUPING SETS '(' group_item, ')' | group_set
group_set  = '(' ')' | expression
windows    = WINDOW window,
window     = name AS over
over       = name | '(' name ')' | '(' [CLUSTER BY expression,]
             [(PARTITION | DISTRIBUTE) BY expression,] [(ORDER | SORT) BY sort,]
             [(RANGE | ROWS) (bound | BETWEEN bound AND bound)] ')'
bound      = UNBOUNDED (PRECEDING | FOLLOWING) | CURRENT ROW | expression (PRECEDING | FOLLOWING)

from       = FROM relation, {view_of} [pivot] [unpivot]
relation   = [LATERAL] source {join | pivot | unpivot}
join       = [NATURAL] [INNER | CROSS | (LEFT | RIGHT | FULL) [OUTER] | [LEFT] (SEMI | ANTI)] JOIN
             [LATERAL] source [ON expression | USING names | nearest]
nearest    = (APPROX | EXACT) NEAREST [expression] BY (DISTANCE | SIMILARITY) expression
source     = [STREAM] relation_name [as_of] [changes] [WITH options] [sample] [watermark] alias
             | '(' (query | relation) ')' [sample] [watermark] alias
             | values
             | [STREAM] call_name '(' [table_argument,] ')' [watermark] alias
relation_name = IDENTIFIER '(' expression ')' {'.' name} | path
as_of      = [FOR] ((VERSION | SYSTEM_VERSION) AS OF (number | string)
             | (TIMESTAMP | SYSTEM_TIME) AS OF value)
changes    = CHANGES {name | number | string | value}
watermark  = WATERMARK item DELAY OF interval
alias      = [[AS] table_alias [names]]
values     = VALUES expression, alias
options    = '(' option, ')'
option     = (path | string) [['='] expression]
sample     = TABLESAMPLE [name] '(' [['-'] number PERCENT | expression ROWS | expression
             | BUCKET number OUT OF number [ON expression]] ')' [REPEATABLE '(' number ')']
view_of    = LATERAL VIEW [OUTER] path '(' [expression,] ')' name [[AS] name,]
pivot      = PIVOT '(' item, FOR (name | names) IN '(' item, ')' ')'  alias
unpivot    = UNPIVOT [(INCLUDE | EXCLUDE) NULLS] '(' (name | names) FOR name
             IN '(' unpivoted, ')' ')' alias
unpivoted  = (path | '(' path, ')') [[AS] name]
table_argument = [name '=>'] TABLE (relation_name | '(' (query | relation_name) ')') [divided]
             | argument
divided    = (WITH SINGLE PARTITION | (PARTITION | DISTRIBUTE) BY expression)
             [(ORDER | SORT) BY (sort | '(' sort, ')')]
pipe       = SELECT [ALL | DISTINCT] item, | EXTEND item, | SET assigned, | DROP name, | AS name
             | where | pivot | unpivot | sample | join | set_op term | order | AGGREGATE [item,]
             [GROUP BY piped_group, [WITH (ROLLUP | CUBE)]]
assigned   = path '=' expression
piped_group = group_item [[AS] name]

expression = negated {(AND | OR) negated}
negated    = {NOT | '!'} (EXISTS '(' query ')' | value [predicate])
predicate  = [NOT | '!'] (BETWEEN value AND value | IN '(' (query | expression,) ')'
             | (RLIKE | REGEXP) value
             | (LIKE | ILIKE) ((ANY | SOME | ALL) '(' expression, ')' | value [ESCAPE string]))
             | IS [NOT | '!'] (NULL | TRUE | FALSE | UNKNOWN | DISTINCT FROM value)
value      = {sign} operand {operator {sign} operand}
sign       = '-' | '+' | '~'
operator   = '*' | '/' | '%' | DIV | '+' | '-' | '||' | '&' | '^' | '|' | '=' | '==' | '<>' | '!='
             | '<' | '<=' | '<=>' | '>' | '>=' | '<' '<' | '>' '>' | '>' '>' '>' | '!' '<' | '!' '>'
operand    = primary {'.' name | '.' star | '[' value ']' | '::' type | COLLATE path
             | ':' (name | '[' string ']') {'.' name | '.' '*' | '[' (value | '*') ']'}}
star       = '*' [EXCEPT '(' path, ')']
primary    = name | call | number | string {string} | star | '?' | ':' name
             | (DATE | TIME | TIMESTAMP | TIMESTAMP_LTZ | TIMESTAMP_NTZ | INTERVAL | X) string
             | interval
             | CASE [expression] when {when} [ELSE expression] END
             | (CAST | TRY_CAST) '(' expression AS type ')'
             | STRUCT '(' [item,] ')'
             | '(' (query | expression | item ',' item,) ')'
             | (name | names) '->' expression
             | EXTRACT '(' (name | string) FROM value ')'
             | (SUBSTR | SUBSTRING) '(' value FROM value [FOR value] ')'
             | TRIM '(' [BOTH | LEADING | TRAILING] [value] FROM value ')'
             | OVERLAY '(' value PLACING value FROM value [FOR value] ')'
             | POSITION '(' value IN value ')'
when       = WHEN expression THEN expression
interval   = INTERVAL amount {amount}
amount     = ['+' | '-'] (number | string) unit [TO unit]
unit       = NANOSECOND | NANOSECONDS | MICROSECOND | MICROSECONDS | MILLISECOND | MILLISECONDS
             | SECOND | SECONDS | MINUTE | MINUTES | HOUR | HOURS | DAY | DAYS | WEEK | WEEKS
             | MONTH | MONTHS | YEAR | YEARS
call       = call_name '(' [[ALL | DISTINCT] argument, [nulls]] ')'
             [WITHIN GROUP '(' ORDER BY sort, ')'] [FILTER '(' WHERE expression ')'] [nulls]
             [OVER over]
call_name  = path | IDENTIFIER '(' expression ')'
nulls      = (IGNORE | RESPECT) NULLS
argument   = [name '=>'] expression

type       = path ['(' (number | name), ')'] [(WITH [LOCAL] | WITHOUT) TIME ZONE] [COLLATE path]
             | ARRAY '<' type '>' | MAP '<' type ',' type '>'
             | STRUCT ('<' [field,] '>' | '<>') | INTERVAL unit [TO unit]
field      = name [':'] type [NOT NULL] [COMMENT string]
path       = name {'.' name}
names      = '(' name, ')'
"""
"""Keywords stand in capitals, ``x,`` is a list, ``[x]`` may be missing, ``{x}`` comes any number of
times. ``name``, ``table_alias``, ``number`` and ``string`` are single tokens."""

_NO_ALIAS = frozenset({
    "anti", "cross", "except", "full", "inner", "intersect", "join", "lateral", "left", "natural",
    "on", "right", "semi", "minus", "setminus", "union", "using",
})
"""Keywords that are no name of a table without AS before it."""


_GUESSED = (
    "select", "from", "where", "group", "order", "having", "join", "left", "right", "inner",
    "union", "limit", "with", "case", "when", "then", "else", "end", "cast", "over", "partition",
    "distinct", "between", "like", "null", "and", "not", "exists", "values", "lateral",
)


class Refusal(NamedTuple):
    """Where a text stops being SQL: the offset, the token there (empty at the end), a guess."""

    offset: int
    token: str
    meant: str | None = None


class NotUnderstood(Exception):
    """A text that this grammar has no opinion about; the message says why."""


def refusal(text: str, *starts: str) -> Refusal | None:
    """Where ``text`` cannot be read as any of the rules ``starts``; None where it can.

    Raises NotUnderstood for what Spark reads only after it was changed, and for what nests deeper
    than can be followed here.
    """
    tokens = tokenise(text)
    variable = next((token for token in tokens if token.kind == "variable"), None)
    if variable is not None:
        raise NotUnderstood(f"Spark puts something in for {variable.text} first")
    reading = _Reading(tokens)
    rules = _compiled().rules
    try:
        if any(len(tokens) in rules[start](reading, 0) for start in starts):
            return None
    except RecursionError:
        raise NotUnderstood("it is nested too deeply to be followed") from None
    far = min(reading.far, len(tokens))
    comma = _comma_too_much(tokens, far)
    if comma is not None:
        return Refusal(comma.start, ",", "it without the ,")
    at = (*tokens, end_token(len(text)))[far]
    return Refusal(at.start, at.text, _meant(tokens, far))


def _comma_too_much(tokens: Sequence[Token], far: int) -> Token | None:
    """A comma near ``far`` that nothing stands behind."""
    for token, behind in zip(
        tokens[max(far - 3, 0) : far + 1], (*tokens, end_token(0))[max(far - 3, 0) + 1 :],
        strict=False,
    ):
        if token.is_operator(",") and (
            behind.kind == "end" or behind.is_operator(",", ")") or behind.is_word("from", "where")
        ):
            return token
    return None


def _meant(tokens: Sequence[Token], far: int) -> str | None:
    """The keyword that the word at ``far``, or the one before, was probably to be."""
    known = _compiled().keywords
    for token in (*tokens[far : far + 1], *tokens[max(far - 1, 0) : far]):
        if token.kind == "word" and token.value not in known:
            near = difflib.get_close_matches(token.value, _GUESSED, 1, 0.75)
            if near:
                return f"{near[0].upper()} for {token.text}"
    return None


# -- the machine -----------------------------------------------------------------------------------

Read = Callable[["_Reading", int], "tuple[int, ...]"]
"""All places where something can end that begins at a place; none: it is not there."""

_Tree = tuple[str, "list[_Tree]", str]
"""What a part of the grammar is, its parts, and the rule or key that it names."""


class _Reading:
    """One text: the keys of its tokens, what was found already, and how far any reading came.

    The key of a keyword is itself, of an operator its text; else it says what the token is.
    """

    __slots__ = ("far", "found", "keys")

    def __init__(self, tokens: Sequence[Token]) -> None:
        keywords = _compiled().keywords
        self.far = 0
        self.found: dict[tuple[str, int], tuple[int, ...]] = {}
        self.keys = []
        for at, token in enumerate(tokens):
            if token.kind == "word":
                key = token.value if token.value in keywords else "NAME"
            elif token.kind == "operator":
                key = token.text
                if key == "." and tokens[at + 1 : at + 2] and (
                    tokens[at + 1].kind == "number" and tokens[at + 1].start == token.end
                ):
                    key = "POINT"
            elif token.text.startswith('"'):
                key = "DOUBLE"  # a string, or a name where the session has it so
            else:
                key = "NAME" if token.kind == "quoted" else token.kind.upper()
            self.keys.append(key)
        self.keys.append("END")


class _Compiled(NamedTuple):
    rules: Mapping[str, Read]
    keywords: frozenset[str]


_RULE = re.compile(r"^(\w+) +=", re.MULTILINE)
_SYMBOL = re.compile(r"\s*(?:([a-z_]+)|([A-Z_]+)|'([^']+)'|([\[\]{}()|,]))")
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_WHAT = {"[": "maybe", "{": "repeat", "(": "either"}


@lru_cache(maxsize=1)
def _compiled() -> _Compiled:
    """The grammar, compiled once and only where a text is to be read."""
    pieces = _RULE.split(GRAMMAR)
    bodies = zip(pieces[1::2], pieces[2::2], strict=True)
    compiler = _Compiler({
        name: _tree([match.groups() for match in reversed(list(_SYMBOL.finditer(body)))], None)
        for name, body in bodies
    })
    return _Compiled(
        {name: compiler.rule(name) for name in compiler.trees}, frozenset(compiler.keywords)
    )


def _tree(symbols: list[tuple[str | None, ...]], closing: str | None) -> _Tree:
    """The alternatives up to ``closing``, taken from the end of ``symbols``."""
    found: list[_Tree] = [("sequence", [], "")]
    while symbols:
        rule, word, sign, mark = symbols.pop()
        parts = found[-1][1]
        if mark is None:
            key = word.lower() if word else sign or ""
            parts.append(("rule", [], rule) if rule else ("key", [], key))
        elif mark == closing:
            break
        elif mark == "|":
            found.append(("sequence", [], ""))
        elif mark == ",":
            parts.append(("list", [parts.pop()], ""))
        else:
            parts.append((_WHAT[mark], [_tree(symbols, _CLOSING[mark])], ""))
    return ("either", found, "")


class _Compiler:
    """Turns the trees of the rules into functions that read."""

    def __init__(self, trees: Mapping[str, _Tree]) -> None:
        self.trees = trees
        self.keywords = {key for tree in trees.values() for key in _keys(tree) if key[0].isalpha()}
        names = {"NAME", "DOUBLE", *self.keywords}
        self.tokens: dict[str, frozenset[str]] = {
            "name": frozenset(names),
            "table_alias": frozenset(names - _NO_ALIAS),
            "string": frozenset({"STRING", "DOUBLE"}),
            "number": frozenset({"NUMBER", "POINT"}),
        }
        self.firsts: dict[str, tuple[frozenset[str], bool]] = dict.fromkeys(
            trees, (frozenset(), False)
        )
        before = None
        while before != self.firsts:  # what a rule begins with hangs on what others begin with
            before = dict(self.firsts)
            for name, tree in trees.items():
                self.firsts[name] = self.first(tree)
        self.reads: dict[str, Read] = {}

    def first(self, tree: _Tree) -> tuple[frozenset[str], bool]:
        """Return the keys that something can begin with, and whether it may be empty."""
        what, parts, text = tree
        if what == "key":
            return frozenset({text}), False
        if what == "rule":
            known = self.tokens.get(text)
            return self.firsts[text] if known is None else (known, False)
        inner = [self.first(part) for part in parts]
        if what == "sequence":
            keys: set[str] = set()
            for first, empty in inner:
                keys |= first
                if not empty:
                    return frozenset(keys), False
            return frozenset(keys), True
        return (
            frozenset().union(*(first for first, _ in inner)),
            what in ("maybe", "repeat") or any(empty for _, empty in inner),
        )

    def rule(self, name: str) -> Read:
        """Return what reads a rule; what it finds at a place is remembered."""
        if name not in self.reads:
            body: list[Read] = []

            def read(reading: _Reading, at: int) -> tuple[int, ...]:
                ends = reading.found.get((name, at))
                if ends is None:
                    ends = reading.found[name, at] = body[0](reading, at)
                return ends

            self.reads[name] = read
            body.append(self.part(self.trees[name]))
        return self.reads[name]

    def part(self, tree: _Tree) -> Read:
        what, parts, text = tree
        if what == "key":
            return _one(frozenset({text}))
        if what == "rule":
            if text == "number":  # .5 is two tokens
                return _either([
                    (frozenset({"NUMBER"}), False, _one(frozenset({"NUMBER"}))),
                    (frozenset({"POINT"}), False, _sequence(
                        [_one(frozenset({"POINT"})), _one(frozenset({"NUMBER"}))]
                    )),
                ])
            known = self.tokens.get(text)
            return self.rule(text) if known is None else _one(known)
        if what == "sequence":
            reads = [self.part(part) for part in parts]
            return reads[0] if len(reads) == 1 else _sequence(reads)
        if what == "either":
            if len(parts) == 1:
                return self.part(parts[0])
            return _either([(*self.first(part), self.part(part)) for part in parts])
        first, _ = self.first(parts[0])
        read = self.part(parts[0])
        if what == "maybe":
            return lambda reading, at: (
                (at, *read(reading, at)) if reading.keys[at] in first else (at,)
            )
        return _repeat(first, read) if what == "repeat" else _list(read)


def _keys(tree: _Tree) -> Iterable[str]:
    what, parts, text = tree
    if what == "key":
        yield text
    for part in parts:
        yield from _keys(part)


def _one(keys: frozenset[str]) -> Read:
    def read(reading: _Reading, at: int) -> tuple[int, ...]:
        if reading.keys[at] not in keys:
            return ()
        if at >= reading.far:
            reading.far = at + 1
        return (at + 1,)

    return read


def _sequence(reads: Sequence[Read]) -> Read:
    def read(reading: _Reading, at: int) -> tuple[int, ...]:
        ends: tuple[int, ...] = (at,)
        for each in reads:
            if len(ends) == 1:
                ends = each(reading, ends[0])
            else:
                ends = tuple({end for start in ends for end in each(reading, start)})
            if not ends:
                break
        return ends

    return read


def _either(choices: Sequence[tuple[frozenset[str], bool, Read]]) -> Read:
    fitting: dict[str, list[Read]] = {}

    def read(reading: _Reading, at: int) -> tuple[int, ...]:
        key = reading.keys[at]
        reads = fitting.get(key)
        if reads is None:
            reads = fitting[key] = [each for first, empty, each in choices if empty or key in first]
        if len(reads) == 1:
            return reads[0](reading, at)
        return tuple({end for each in reads for end in each(reading, at)})

    return read


def _repeat(first: frozenset[str], read: Read) -> Read:
    def repeated(reading: _Reading, at: int) -> tuple[int, ...]:
        ends = {at}
        pending = [at]
        while pending:
            start = pending.pop()
            if reading.keys[start] in first:
                for end in read(reading, start):
                    if end not in ends:
                        ends.add(end)
                        pending.append(end)
        return tuple(ends)

    return repeated


def _list(read: Read) -> Read:
    def listed(reading: _Reading, at: int) -> tuple[int, ...]:
        ends: set[int] = set()
        pending = [at]
        while pending:
            for end in read(reading, pending.pop()):
                if end not in ends:
                    ends.add(end)
                    if reading.keys[end] == ",":
                        pending.append(end + 1)
                        reading.far = max(reading.far, end + 1)
        return tuple(ends)

    return listed
