"""Tests of the codecs: golden bytes, what is refused, and what is out of bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.kafka.positions import KafkaCodec
from catalog_migrate.connectors.positions import START
from catalog_migrate.connectors.postgres.positions import PostgresBounds, PostgresCodec
from catalog_migrate.connectors.postgres.types import Position
from catalog_migrate.errors import CheckpointCorrupt, InvalidPosition
from catalog_migrate.streams.checkpoint.codecs import DeltaBounds, DeltaCodec, DeltaPosition

KAFKA, DELTA, POSTGRES = KafkaCodec(), DeltaCodec(), PostgresCodec()
CODECS = {"KAFKA": KAFKA, "DELTA": DELTA, "POSTGRES": POSTGRES}
GOLDEN_POSTGRES = '{"lsn": "0/16B3748", "timeline": 1, "system": "7712330203330602927"}'
GOLDEN_DELTA = (
    '{"sourceVersion":1,"reservoirId":"9add171e-4d5d-44f8-94bd-ed085c00cac7",'
    '"reservoirVersion":3,"index":-1,"isStartingVersion":false}'
)
LONGS = st.integers(0, 2**63 - 1)
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=12)


class TestAll:
    @pytest.mark.parametrize("kind", sorted(CODECS))
    def test_a_dash_means_start_in_every_codec(self, kind: str) -> None:
        """A line ``-`` has no positions, and no positions give that line."""
        codec = CODECS[kind]

        assert codec.kind == kind
        assert (codec.read(START), codec.write(None)) == (None, "-")

    @pytest.mark.parametrize("kind", sorted(CODECS))
    @pytest.mark.parametrize("line", ["", "{", "[]", "7", "null", '"x"', "{}x", '{"a":1,"a":2}'])
    def test_what_is_no_offset_is_refused(self, kind: str, line: str) -> None:
        """Anything but one JSON object with distinct keys is an invalid position."""
        with pytest.raises(InvalidPosition):
            CODECS[kind].read(line)

    @given(st.text())
    def test_any_text_is_read_or_refused_never_more(self, line: str) -> None:
        """A codec answers any text with positions or with InvalidPosition."""
        for codec in CODECS.values():
            try:
                codec.read(line)
            except InvalidPosition:
                continue


class TestKafka:
    def test_golden_line(self) -> None:
        """The next record to read, by topic and partition, without spaces."""
        assert KAFKA.write({("topic", 0): 123}) == '{"topic":{"0":123}}'
        assert KAFKA.read('{"topic":{"0":123}}') == {("topic", 0): 123}

    def test_the_order_of_spark_is_kept(self) -> None:
        """Spark orders partitions by hash; a line read and written back is the same bytes."""
        line = '{"t":{"2":5,"1":3,"10":4,"0":4}}'
        positions = KAFKA.read(line)

        assert KAFKA.write(positions) == line

    @given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 9999)), LONGS, min_size=1))
    def test_round_trip(self, positions: dict[tuple[str, int], int]) -> None:
        """Whatever positions are written are read again."""
        assert KAFKA.read(KAFKA.write(positions)) == positions

    @pytest.mark.parametrize(
        "offset", ['"5"', "5.0", "true", "null", "-1", "-2", "[5]", "1e3", "9223372036854775808"]
    )
    def test_an_offset_that_is_no_number_is_refused(self, offset: str) -> None:
        """Texts, fractions, truth values, relative and too large offsets name their partition."""
        with pytest.raises(InvalidPosition, match="the offset of t-0"):
            KAFKA.read(f'{{"t":{{"0":{offset}}}}}')

    def test_the_message_shows_what_was_found(self) -> None:
        """The error says which partition, what stands there, and what to write."""
        with pytest.raises(InvalidPosition) as caught:
            KAFKA.read('{"t":{"0":"five"}}')

        assert str(caught.value) == (
            "CM0735: the offset of t-0 is no number: '\"five\"'\n"
            "  remedy: write a whole number: the next record to read"
        )

    @pytest.mark.parametrize("number", ["-1", "x", "01", "", "1.0", "²"])
    def test_a_partition_that_is_no_number_is_refused(self, number: str) -> None:
        """Partitions are whole numbers from 0, written plainly."""
        with pytest.raises(InvalidPosition, match="no partition number"):
            KAFKA.read(f'{{"t":{{"{number}":5}}}}')

    def test_a_topic_or_partition_given_twice_is_refused(self) -> None:
        """JSON would take the last one in silence."""
        with pytest.raises(InvalidPosition, match="'t' is given twice"):
            KAFKA.read('{"t":{"0":5},"t":{"0":6}}')
        with pytest.raises(InvalidPosition, match="'0' is given twice"):
            KAFKA.read('{"t":{"0":5,"0":6}}')

    def test_bad_numbers_are_not_written(self) -> None:
        """What would not be read is not written either."""
        with pytest.raises(InvalidPosition):
            KAFKA.write({("t", 0): -1})
        with pytest.raises(InvalidPosition):
            KAFKA.write({("t", -1): 1})

    def test_bounds(self) -> None:
        """The oldest record and one past the newest are inside; all problems are told at once."""
        bounds = {("t", 0): (5, 9), ("t", 1): (0, 3), ("t", 2): (0, 0)}

        assert KAFKA.check({("t", 0): 5, ("t", 1): 3, ("t", 2): 0}, bounds) == ()
        assert KAFKA.check({("t", 0): 4, ("t", 1): 4, ("u", 0): 1}, bounds) == (
            "t-0: 4 is expired, the oldest record kept is 5",
            "t-1: 4 is beyond the end, 3",
            "t-2 has no position (records 0 to 0 are there)",
            "u-0 does not exist",
        )

    def test_golden_initial_offsets(self) -> None:
        """A zero byte, the version, the JSON of a line."""
        codec = KafkaCodec()
        data = b'\x00v1\n{"topic":{"0":0}}'

        assert codec.write_initial({("topic", 0): 0}) == data
        assert codec.read_initial(data, "sources/0/0") == {("topic", 0): 0}

    @pytest.mark.parametrize(
        "data", [b"", b"v1\n{}", b"\x00v2\n{}", b"\x00v1\n", b"\x00v1\n{", b"\x00v1\n\xff"]
    )
    def test_corrupt_initial_offsets_name_the_file(self, data: bytes) -> None:
        """Another header, no JSON, or no text is corrupt."""
        with pytest.raises(CheckpointCorrupt, match="sources/0/0"):
            KafkaCodec().read_initial(data, "sources/0/0")


class TestDelta:
    def test_golden_line(self) -> None:
        """Delta's five keys in Delta's order."""
        position = DeltaPosition("9add171e-4d5d-44f8-94bd-ed085c00cac7", 3)

        assert DELTA.write(position) == GOLDEN_DELTA
        assert DELTA.read(GOLDEN_DELTA) == position

    def test_version_0_untouched_is_start(self) -> None:
        """Delta dies on version 0 with index -1, which means what START means."""
        assert DELTA.write(DeltaPosition("x", 0)) == START
        assert DELTA.write(DeltaPosition("x", 0, index=3, starting=True)) != START

    @pytest.mark.parametrize(
        ("position", "consumed"),
        [
            (DeltaPosition("x", 3), 2),
            (DeltaPosition("x", 3, index=0), None),
            (DeltaPosition("x", 3, index=5, starting=True), None),
        ],
    )
    def test_consumed(self, position: DeltaPosition, consumed: int | None) -> None:
        """Everything below the next version is read, unless the reader stands in its midst."""
        assert position.consumed == consumed

    @given(
        st.builds(
            DeltaPosition,
            st.uuids().map(str),
            st.integers(1, 2**63 - 1),
            st.integers(-1, 10**6),
            st.booleans(),
            st.sampled_from([1, 3]),
        )
    )
    def test_round_trip(self, position: DeltaPosition) -> None:
        """Whatever position is written is read again."""
        assert DELTA.read(DELTA.write(position)) == position

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('"sourceVersion":1', '"sourceVersion":2'),
            ('"sourceVersion":1', '"sourceVersion":true'),
            ('"reservoirVersion":3', '"reservoirVersion":"3"'),
            ('"reservoirVersion":3', '"reservoirVersion":-1'),
            ('"index":-1', '"index":-1.5'),
            ('"isStartingVersion":false', '"isStartingVersion":0'),
            ('"reservoirId":"9add171e-4d5d-44f8-94bd-ed085c00cac7"', '"reservoirId":null'),
            (',"isStartingVersion":false', ""),
            ("}", ',"more":1}'),
        ],
    )
    def test_anything_else_is_refused(self, before: str, after: str) -> None:
        """Unknown formats, missing and further keys, and values of another type."""
        with pytest.raises(InvalidPosition):
            DELTA.read(GOLDEN_DELTA.replace(before, after))

    def test_bounds(self) -> None:
        """From the oldest version kept to one past the newest, of the same table."""
        bounds = DeltaBounds("x", 2, 5)

        assert DELTA.check(DeltaPosition("x", 2), bounds) == ()
        assert DELTA.check(DeltaPosition("x", 6), bounds) == ()
        assert DELTA.check(DeltaPosition("x", 6, index=0), bounds) == (
            "version 6 is beyond the newest, 5",
        )
        assert DELTA.check(DeltaPosition("y", 1), bounds) == (
            "the position is one of table y, the table there is x",
            "version 1 is expired, the oldest kept is 2",
        )


class TestPostgres:
    def test_golden_line(self) -> None:
        """Letter by letter what the stream reader gives Spark, which compares texts."""
        position = Position(0x16B3748, 1, "7712330203330602927")
        assert POSTGRES.write(position) == position.json() == GOLDEN_POSTGRES
        assert POSTGRES.read(GOLDEN_POSTGRES) == position

    def test_a_look_at_the_catalog_stands_behind(self) -> None:
        """As a fourth key; a line of an earlier version has none."""
        position = Position(0x16B3748, 1, "7712330203330602927", "ab12")
        line = GOLDEN_POSTGRES[:-1] + ', "catalog": "ab12"}'
        assert POSTGRES.write(position) == position.json() == line
        assert POSTGRES.read(line) == Position.of(line) == position

    def test_a_survey_that_is_not_on_record_yet(self) -> None:
        """In the same key, behind its fingerprint and that of the one on record: to a version that
        knows none of it, another fingerprint."""
        now, before = "ab" * 12, "cd" * 12
        position = Position(5, 1, "77", now, '{"fingerprint": "x y"}', before)
        line = POSTGRES.write(position)
        assert f'"catalog": "{now} {before} {{' in line
        assert POSTGRES.read(line) == Position.of(line) == position

    @given(
        st.integers(0, 2**64 - 1), st.integers(1, 2**31), st.text("0123456789", min_size=1),
        st.text("0123456789abcdef"),
    )
    def test_what_was_written_is_read(
        self, lsn: int, timeline: int, system: str, catalog: str
    ) -> None:
        """Any position comes back as it was."""
        position = Position(lsn, timeline, system, catalog)
        assert POSTGRES.read(POSTGRES.write(position)) == position

    @pytest.mark.parametrize(
        "line",
        [
            '{"lsn": "0/1", "timeline": 1}',
            '{"lsn": "0/1", "timeline": 1, "system": "7", "more": 1}',
            '{"lsn": 1, "timeline": 1, "system": "7"}',
            '{"lsn": "1", "timeline": 1, "system": "7"}',
            '{"lsn": "0/G", "timeline": 1, "system": "7"}',
            '{"lsn": "0/1", "timeline": 0, "system": "7"}',
            '{"lsn": "0/1", "timeline": "1", "system": "7"}',
            '{"lsn": "0/1", "timeline": 1, "system": 7}',
            '{"lsn": "0/1", "timeline": 1, "system": "7", "catalog": 1}',
            '{"lsn": "0/1", "timeline": 1, "catalog": "ab"}',
        ],
    )
    def test_what_is_no_position(self, line: str) -> None:
        """Another set of keys, and values of another form."""
        with pytest.raises(InvalidPosition):
            POSTGRES.read(line)

    @pytest.mark.parametrize(
        ("lsn", "timeline", "system", "said"),
        [
            (0x50, 2, "7", ()),
            (0x90, 2, "7", ()),
            (0x4F, 2, "7", ("0/4F is gone, the slot has the changes from 0/50 on",)),
            (0x91, 2, "7", ("0/91 is beyond the end of the server's log, 0/90",)),
            (0x60, 1, "7", ("the position is on timeline 1, the server on 2",)),
            (0x60, 2, "8", ("the position is of server 8, and 7 answers",)),
        ],
    )
    def test_bounds(self, lsn: int, timeline: int, system: str, said: tuple[str, ...]) -> None:
        """Only what the slot has of this very log."""
        bounds = PostgresBounds("7", 2, 0x50, 0x90)
        assert POSTGRES.check(Position(lsn, timeline, system), bounds) == said
