"""Bytes of pgoutput become changes: every kind of message, and every order of parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.postgres import pgoutput
from catalog_migrate.connectors.postgres.pgoutput import (
    Change,
    Summary,
    arrow_batch,
    count,
    decode,
    decode_batches,
    find_truncates,
)
from catalog_migrate.connectors.postgres.sessions import marked, parse_failure
from catalog_migrate.connectors.postgres.types import Column, Expected
from catalog_migrate.errors import ChangesMissing, TableChanged, UnfitValue, UnreadableMessage
from tests.replication import messages as m

AT = 1_795_000_000_000_000
ID, NAME, DOC = Column("id", 20, -1, True), Column("name", 25), Column("doc", 25)
TABLES = {
    "public.t": Expected((ID, NAME, DOC)),
    "public.u": Expected((ID, NAME)),
}
RELATIONS = [m.relation(1, "public.t", [ID, NAME, DOC]), m.relation(2, "public.u", [ID, NAME])]


def changes(
    *messages: bytes, start: int = 0, end: int = 1 << 62, tables: dict[str, Expected] | None = None
) -> list[Change]:
    return list(
        decode([(0, one) for one in messages], start=start, end=end, tables=tables or TABLES)
    )


def transaction(*rows: bytes, lsn: int = 100, xid: int = 7) -> list[bytes]:
    return [m.begin(lsn, AT, xid), *rows, m.commit(lsn, AT)]


def images(found: Iterable[Change]) -> list[tuple[object, ...]]:
    return [(one.operation, one.before, one.after, one.unchanged) for one in found]


class TestKinds:
    def test_bytes_of_a_real_server(self) -> None:
        """Relation, insert, update of the key and delete as PostgreSQL 18 sent them."""
        sent = [
            "42 000000000171a4b8 0003042529b142a1 000002f3",
            "52 00004000 7075626c696300 7400 64 0002 01 696400 00000014 ffffffff"
            " 00 6e616d6500 00000019 ffffffff",
            "49 00004000 4e 0002 74 00000001 31 74 00000003 c3a978",
            "55 00004000 4b 0002 74 00000001 31 6e 4e 0002 74 00000001 32 6e",
            "44 00004000 4b 0002 74 00000001 32 6e",
            "43 00 000000000171a4b8 000000000171a4e8 0003042529b142a1",
        ]
        found = changes(
            *map(bytes.fromhex, sent),
            tables={"public.t": Expected((ID, NAME))},
        )
        assert [(one.table, one.lsn, one.sequence, one.transaction) for one in found] == [
            ("public.t", 0x171A4B8, number, 755) for number in range(3)
        ]
        assert {one.committed for one in found} == {0x0003042529B142A1 + m.EPOCH}
        assert images(found) == [
            ("insert", None, ("1", "éx"), ()),
            ("update", ("1", None), ("2", None), ()),
            ("delete", ("2", None), None, ()),
        ]

    def test_a_batch_by_the_begin_of_the_commit_record(self) -> None:
        """start <= commit LSN < end, whatever the end of the record."""
        sent = RELATIONS + [
            one for lsn in (99, 100, 150, 200)
            for one in transaction(m.insert(2, [lsn, "a"]), lsn=lsn)
        ]
        assert [one.lsn for one in changes(*sent, start=100, end=200)] == [100, 150]

    def test_counts(self) -> None:
        """As many changes of each table as are decoded; columns are not looked at."""
        sent = RELATIONS + [
            one for lsn in (99, 100, 150, 200)
            for one in transaction(
                m.insert(2, [lsn, "a"]), m.insert(1, [lsn, "a", "b"]), m.truncate(1, 2), lsn=lsn
            )
        ]
        found = changes(*sent, start=100, end=200)
        assert count([(0, one) for one in sent], start=100, end=200) == {
            table: sum(one.table == table for one in found) for table in ("public.t", "public.u")
        }

    def test_old_images(self) -> None:
        """FULL gives the old row, and from it what was not sent; a key that changed its old key;
        else what was not sent is told by its position."""
        full = m.relation(1, "public.t", [ID, NAME, DOC], identity="f")
        found = changes(
            *RELATIONS, m.begin(100, AT, 7), m.update(1, [1, "b", m.UNCHANGED]),
            m.update(1, [2, "b", m.UNCHANGED], old=[1, None, None]), full,
            m.update(1, [2, "c", m.UNCHANGED], old=[2, "b", "large"], kind="O"),
            m.delete(1, [2, "c", None], kind="O"), m.commit(100, AT),
        )
        assert images(found) == [
            ("update", None, ("1", "b", None), (2,)),
            ("update", ("1", None, None), ("2", "b", None), (2,)),
            ("update", ("2", "b", "large"), ("2", "c", "large"), ()),
            ("delete", ("2", "c", None), None, ()),
        ]

    @pytest.mark.parametrize("row", [
        m.insert(1, ["1", "ok", b"\xe9t\xe9"]),
        m.update(1, ["1", None, b"\xff"], old=["0", None, None]),
        m.update(1, ["1", None, "x"], old=["1", "ok", b"\xff"], kind="O"),
    ])
    def test_a_value_that_is_no_text(self, row: bytes) -> None:
        """Bytes of a database that does not say what they are: an error that names table and
        column, and no value."""
        with pytest.raises(UnfitValue, match=r"column doc of public\.t is no text") as error:
            changes(*RELATIONS, *transaction(row))
        assert (error.value.data["table"], error.value.data["column"]) == ("public.t", "doc")
        assert error.value.data["lsn"] == 100
        assert str(parse_failure(marked(error.value))) == str(error.value)

    def test_truncate_and_what_is_passed_over(self) -> None:
        """One change a table; tables not asked for count in the sequence; origins, types and
        messages do not."""
        other = m.relation(3, "public.other", [ID])
        found = changes(
            *RELATIONS, other, b"Y\0\0\0\1public\0mood\0", m.begin(100, AT, 7),
            b"O" + bytes(8) + b"elsewhere\0", m.insert(3, [1]), m.message(), m.truncate(1, 3, 2),
            m.insert(2, [1, None]), m.commit(100, AT),
        )
        assert [(one.table, one.operation, one.sequence) for one in found] == [
            ("public.t", "truncate", 1), ("public.u", "truncate", 3), ("public.u", "insert", 4)
        ]

    @pytest.mark.parametrize("kind", ["b", "P", "K", "r", "p"])
    def test_two_phase(self, kind: str) -> None:
        """Refused with the reason."""
        with pytest.raises(UnreadableMessage, match="two-phase transaction: its rows would come"):
            changes(kind.encode() + bytes(40))

    def test_what_is_no_whole_transaction(self) -> None:
        """Neither the end in the middle, nor changes outside, nor binary values go unseen."""
        with pytest.raises(UnreadableMessage, match="end in the middle"):
            changes(*RELATIONS, m.begin(100, AT, 7), m.insert(2, [1, "a"]))
        with pytest.raises(UnreadableMessage, match="outside of a transaction"):
            changes(*RELATIONS, m.insert(2, [1, "a"]))
        with pytest.raises(UnreadableMessage, match="of another transaction"):
            changes(m.begin(100, AT, 7), m.commit(101, AT))
        binary = m.insert(2, [1, "a"]).replace(b"t", b"b")
        with pytest.raises(UnreadableMessage, match="binary form"):
            changes(*RELATIONS, *transaction(binary))
        with pytest.raises(UnreadableMessage, match="message 'z'"):
            changes(b"z")


class TestColumns:
    def test_another_order(self) -> None:
        """Images come in the order expected, unchanged positions too."""
        turned = m.relation(1, "public.t", [DOC, ID, NAME])
        found = changes(turned, *transaction(m.update(1, [m.UNCHANGED, 1, "a"])))
        assert images(found) == [("update", None, ("1", "a", None), (2,))]

    def test_a_large_key_comes_with_the_old_one(self) -> None:
        """It is no other key when it did not change, and its value is known either way."""
        columns = (ID, Column("part", 25, -1, True), DOC)
        tables = {"public.t": Expected(columns)}
        for new, before in ((1, None), (2, ("1", "large", None))):
            found = changes(
                m.relation(1, "public.t", columns), *transaction(m.update(
                    1, [new, m.UNCHANGED, m.UNCHANGED], old=[1, "large", None]
                )), tables=tables,
            )
            assert images(found) == [("update", before, (str(new), "large", None), (2,))]

    def test_new_columns_are_passed_over_where_a_table_says_so(self) -> None:
        """The others are refused all the same."""
        new = m.relation(1, "public.u", [ID, Column("more", 23), NAME])
        row = transaction(m.insert(1, [1, 5, "a"]))
        found = changes(new, *row, tables={"public.u": Expected((ID, NAME), "ignore")})
        assert found[0].after == ("1", "a")
        with pytest.raises(TableChanged, match="column name is gone"):
            changes(
                m.relation(1, "public.u", [ID, Column("more", 23)]), *transaction(),
                *transaction(m.insert(1, [1, 5])),
                tables={"public.u": Expected((ID, NAME), "ignore")},
            )

    @pytest.mark.parametrize(
        ("now", "says"),
        [
            ([ID, NAME, Column("more", 23)], "column more is new"),
            ([ID], "column name is gone"),
            ([ID, Column("label", 25)], "column label is new, column name is gone"),
            ([Column("id", 23, -1, True), NAME], "column id has another type"),
            ([Column("id", 20), NAME], "column id is no longer in the key"),
        ],
    )
    def test_a_change_of_columns(self, now: list[Column], says: str) -> None:
        """Raised at the first change that has it, with the columns before and after; changes before
        it come, and a table nobody changes is not missed."""
        with pytest.raises(TableChanged, match=says) as caught:
            changes(
                *RELATIONS, *transaction(m.insert(2, [1, "a"])),
                m.relation(2, "public.u", now), *transaction(m.insert(1, [1, None, None])),
                *transaction(m.insert(2, [1] * len(now))),
            )
        assert (caught.value.table, caught.value.new) == ("public.u", tuple(now))
        assert caught.value.old == (ID, NAME)
        fine = changes(m.relation(2, "public.u", now), RELATIONS[0],
                       *transaction(m.insert(1, [1, None, None])))
        assert len(fine) == 1

    def test_a_column_that_came_later_may_be_missing_before(self) -> None:
        """Changes up to the commit that had it first may lack it; behind it, it is gone."""
        tables = {"public.u": Expected((ID, NAME, Column("more", 23, since=200)))}
        sent = [m.relation(2, "public.u", [ID, NAME]),
                *transaction(m.insert(2, [1, "a"]), lsn=200)]
        assert changes(*sent, tables=tables)[0].after == ("1", "a", None)
        with pytest.raises(TableChanged, match="column more is gone"):
            changes(sent[0], *transaction(m.insert(2, [1, "a"]), lsn=201), tables=tables)

    def test_changes_from_before_the_rows_were_copied(self) -> None:
        """They are passed over, whatever columns the table had; so is a TRUNCATE. The numbers of
        others stay."""
        tables = {"public.t": Expected((ID, NAME), since=200), "public.u": Expected((ID, NAME))}
        before = [m.insert(1, [1]), m.insert(2, [2, "b"]), m.truncate(1, 2)]
        found = changes(
            m.relation(1, "public.t", [ID]), m.relation(2, "public.u", [ID, NAME]),
            *transaction(*before, lsn=199), m.relation(1, "public.t", [ID, NAME]),
            *transaction(m.insert(1, [3, "c"]), lsn=200), tables=tables,
        )
        assert [(one.table, one.operation, one.sequence, one.after) for one in found] == [
            ("public.u", "insert", 1, ("2", "b")), ("public.u", "truncate", 3, None),
            ("public.t", "insert", 0, ("3", "c")),
        ]

    def test_digits_of_a_number_count_and_lengths_of_a_text_do_not(self) -> None:
        """numeric(10,2) to numeric(12,2) is another type, varchar(10) to varchar(20) is not."""
        for oid, is_another in ((1700, True), (1043, False)):
            tables = {"public.u": Expected((ID, Column("v", oid, 14)))}
            sent = [m.relation(2, "public.u", [ID, Column("v", oid, 24)]),
                    *transaction(m.insert(2, [1, "2"]))]
            if is_another:
                with pytest.raises(TableChanged, match="v has another type"):
                    changes(*sent, tables=tables)
            else:
                assert len(changes(*sent, tables=tables)) == 1


class TestStreamed:
    def test_parts_and_their_ends(self) -> None:
        """Changes wait for their commit; an aborted part, and an aborted whole, never come; a
        transaction between the parts has columns of its own."""
        before = RELATIONS[1]
        after = m.relation(2, "public.u", [NAME, ID], xid=20)
        found = changes(
            m.stream_start(20, True), after, m.insert(2, ["a", 1], xid=20),
            m.insert(2, ["b", 2], xid=21), m.message(xid=20), m.STREAM_STOP,
            m.stream_start(30, True), m.relation(2, "public.u", [ID, NAME], xid=30),
            m.insert(2, [3, "never"], xid=30), m.STREAM_STOP,
            before, *transaction(m.insert(2, [4, "d"]), lsn=50, xid=25),
            m.stream_start(20, False), m.truncate(2, xid=22), m.insert(2, ["e", 5], xid=20),
            m.STREAM_STOP, m.stream_abort(20, 21, parallel=True), m.stream_abort(30, 30),
            m.stream_commit(20, 100, AT), *transaction(m.insert(2, ["f", 6]), lsn=150, xid=40),
        )
        assert [(one.transaction, one.lsn, one.sequence, one.after) for one in found] == [
            (25, 50, 0, ("4", "d")), (20, 100, 0, ("1", "a")), (20, 100, 1, None),
            (20, 100, 2, ("5", "e")), (40, 150, 0, ("6", "f")),
        ]

    def test_a_part_that_is_no_part(self) -> None:
        """A commit of what was not streamed, and a part without its end, are errors."""
        with pytest.raises(UnreadableMessage, match="never streamed"):
            changes(m.stream_commit(20, 100, AT))
        with pytest.raises(UnreadableMessage, match="end in the middle"):
            changes(m.stream_start(20, True))


ROWS = st.lists(
    st.tuples(
        st.sampled_from([1, 2]), st.sampled_from("IUDT"), st.integers(0, 3),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
        | st.none(),
    ),
    max_size=6,
)


KNOWN = {"public.t": Expected((ID, NAME), oid=1), "public.u": Expected((ID, NAME), oid=2)}


class TestOids:
    def test_another_name(self) -> None:
        """A table known by its oid is the same one, whatever it is called meanwhile."""
        found = changes(
            m.relation(1, "s.renamed", [ID, NAME]),
            *transaction(m.insert(1, [1, "a"]), m.truncate(1)), tables=KNOWN,
        )
        assert [(one.table, one.operation) for one in found] == [
            ("public.t", "insert"), ("public.t", "truncate")
        ]

    @pytest.mark.parametrize("message", [m.insert(9, [1, "a"]), m.truncate(9)])
    def test_another_table(self, message: bytes) -> None:
        """A change of another table of the name says so, where it belongs to the batch."""
        sent = [m.relation(9, "public.t", [ID, NAME]), *transaction(message, lsn=100)]
        assert changes(*sent, start=101, tables=KNOWN) == []
        with pytest.raises(ChangesMissing, match=r"public\.t: the log has a change of another"):
            changes(*sent, tables=KNOWN)

    def test_swapped_names(self) -> None:
        """Each keeps its own rows."""
        found = changes(
            m.relation(1, "public.u", [ID, NAME]), m.relation(2, "public.t", [ID, NAME]),
            *transaction(m.insert(1, [1, "a"]), m.insert(2, [2, "b"])), tables=KNOWN,
        )
        assert [(one.table, one.after) for one in found] == [
            ("public.t", ("1", "a")), ("public.u", ("2", "b"))
        ]

    def test_transactions_that_truncate_a_table(self) -> None:
        """By its oid, among others."""
        sent = [
            *RELATIONS, *transaction(m.truncate(1, 2), xid=7), *transaction(m.truncate(2), xid=8),
            *transaction(m.insert(1, [1, "a", "d"]), m.truncate(1), xid=9),
        ]
        assert find_truncates(sent, 1) == {7, 9}
        assert find_truncates(sent, 3) == frozenset()


def _row(table: int, kind: str, text: str | None, xid: int | None) -> bytes:
    row: Sequence[object] = [1, text, None] if table == 1 else [1, text]
    if kind == "I":
        return m.insert(table, row, xid=xid)
    if kind == "U":
        return m.update(table, row, xid=xid)
    if kind == "D":
        return m.delete(table, row, xid=xid)
    return m.truncate(table, xid=xid)


@given(st.lists(st.tuples(ROWS, st.sets(st.integers(1, 3)), st.booleans()), max_size=4), st.data())
def test_streamed_is_what_is_sent_at_once(
    transactions: list[tuple[list[tuple[int, str, int, str | None]], set[int], bool]],
    data: st.DataObject,
) -> None:
    """However transactions are cut into parts and interleaved, and whatever parts are aborted."""
    at_once, streamed, open_ones = list(RELATIONS), list(RELATIONS), []
    for number, (rows, aborted, is_aborted) in enumerate(transactions):
        xid = 100 * (number + 1)
        kept = [row for row in rows if row[2] not in aborted]
        if not is_aborted:
            at_once += transaction(
                *(_row(table, kind, text, None) for table, kind, _, text in kept),
                lsn=1000 + number, xid=xid,
            )
        open_ones.append((xid, [_row(table, kind, text, xid + part)
                                for table, kind, part, text in rows]))
    begun: set[int] = set()
    while any(left for _, left in open_ones):
        xid, left = data.draw(st.sampled_from([one for one in open_ones if one[1]]))
        count = data.draw(st.integers(1, len(left)))
        streamed += [m.stream_start(xid, xid not in begun), *left[:count], m.STREAM_STOP]
        begun.add(xid)
        del left[:count]
    for number, (_, aborted, is_aborted) in enumerate(transactions):
        xid = 100 * (number + 1)
        if xid not in begun:
            continue
        streamed += [m.stream_abort(xid, xid + part) for part in aborted]
        if is_aborted:
            streamed.append(m.stream_abort(xid, xid))
        else:
            streamed.append(m.stream_commit(xid, 1000 + number, AT))
    assert changes(*streamed) == changes(*at_once)


def test_a_summary_of_a_batch() -> None:
    """Transactions with the number of their changes; of each table its last TRUNCATE, and what its
    changes lack; however the changes are cut into parts. Nothing of nothing."""
    found = [
        Change("a", "insert", 10, 0, 1, AT, None, ("1", None)),
        Change("b", "update", 10, 1, 1, AT, None, ("1", None), (1,)),
        Change("a", "truncate", 20, 0, 2, AT + 1, None, None),
        Change("a", "truncate", 20, 1, 2, AT + 1, None, None),
        Change("b", "update", 20, 2, 2, AT + 1, ("1", None), ("2", "x")),
        Change("c", "delete", 30, 0, 3, AT + 2, ("1", None), None),
        Change("d", "update", 30, 1, 3, AT + 2, ("1", None), ("2", None), (1,)),
    ]
    for cut in range(len(found) + 1):
        summary = Summary()
        summary.add(found[:cut], 5)
        summary.add(found[cut:], 6)
        batch = summary.batch()
        assert batch.schema == arrow_batch(found).schema
        rows = [tuple(row.values()) for row in batch.to_pylist()]
        assert [(*row[:5], row[8]) for row in rows] == [
            (None, 10, 2, "commit", 1, None), (None, 20, 3, "commit", 2, None),
            (None, 30, 2, "commit", 3, None), ("a", 20, 1, "table", 11, [0, 0, 0]),
            ("b", None, None, "table", 11, [1, 0, 1]), ("c", None, None, "table", 11, [0, 0, 1]),
            ("d", None, None, "table", 11, [1, 1, 1]),
        ]
        assert [row[5] and round(row[5].timestamp() * 1e6) - AT for row in rows] == [
            0, 1, 2, 1, None, None, None,
        ]
    assert Summary().batch().num_rows == 0


VALUE = st.one_of(st.none(), st.just(m.UNCHANGED), st.text(st.characters(exclude_characters="\0",
                  exclude_categories=["Cs"]), max_size=4))
RUNS = st.lists(st.tuples(
    st.integers(1, 2), st.sampled_from(["insert", "update", "keyed", "delete", "truncate"]),
    st.lists(st.lists(VALUE, min_size=3, max_size=3), min_size=1, max_size=9),
), max_size=6)


@given(st.lists(RUNS, max_size=3), st.integers(1, 12), st.integers(1, 300), st.booleans())
def test_columns_are_decoded_as_rows_are(
    transactions: list[list[tuple[int, str, list[list[object]]]]], rows: int, size: int,
    turned: bool,
) -> None:
    """Whatever follows one another, of columns in another order too, and however small the parts:
    as by one change after the other, with their summary behind them."""
    import pyarrow as pa

    sent = [m.relation(1, "public.t", [DOC, ID] if turned else [ID, NAME, DOC]), RELATIONS[1]]
    tables = dict(TABLES)
    if turned:  # a column that has gone since may be missing
        gone = Column("name", 25, until=50)
        tables["public.t"] = Expected((ID, gone, DOC))
    for number, runs in enumerate(transactions):
        messages = []
        for table, kind, values in runs:
            for row in values:
                width = 2 if table == 2 or turned else 3
                new = row[:width]
                old = [None if value is m.UNCHANGED else value for value in new]
                if kind == "insert":
                    messages.append(m.insert(table, old))
                elif kind == "delete":
                    messages.append(m.delete(table, old))
                elif kind == "truncate":
                    messages.append(m.truncate(table))
                else:
                    messages.append(m.update(table, new, old=old if kind == "keyed" else None))
        sent += transaction(*messages, lsn=100 + number, xid=number)
    pairs = [(0, one) for one in sent]
    wanted = list(decode(pairs, start=0, end=1 << 62, tables=tables))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pgoutput, "_MANY", 2)
        *found, summary = decode_batches(
            pairs, start=0, end=1 << 62, tables=tables, rows=rows, size=size
        )
    assert all(batch.num_rows <= rows for batch in found)
    assert pa.Table.from_batches(found).to_pylist() == arrow_batch(wanted).to_pylist()
    counted = Summary()
    counted.add(wanted, sum(len(one) for one in sent if one[:1] in b"IUDT"))
    assert summary.to_pylist() == counted.batch().to_pylist()


def test_what_is_no_text_is_refused_in_columns_too() -> None:
    """Bytes that are no UTF-8, which a server with SQL_ASCII sends, and values in binary."""
    for bad, error in ((b"\xff", UnfitValue), (None, UnreadableMessage)):
        rows = [m.insert(2, [number, "a"]) for number in range(100)]
        last = rows[-1]
        rows[-1] = last[:-1] + bad if bad else last[:-6] + b"b" + last[-5:]
        pairs = [(0, one) for one in [*RELATIONS, *transaction(*rows)]]
        with pytest.raises(error):
            list(decode_batches(pairs, start=0, end=200, tables=TABLES, rows=1000, size=1 << 20))
