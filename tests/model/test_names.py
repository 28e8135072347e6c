from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.errors import InvalidName
from catalog_migrate.model.names import (
    Allocator,
    ItemKey,
    ItemName,
    number_of,
    parse_reference,
    quote_part,
    quote_sql,
    split_name,
)
from catalog_migrate.model.objects import order_key

_names = st.text(min_size=1, max_size=6)


@given(_names, _names)
def test_a_printed_name_is_read_back(schema: str, name: str) -> None:
    """Whatever a name contains, its printed and its SQL form mean the same two parts."""
    assert split_name(str(ItemName(schema, name))) == (schema, name)
    assert split_name(ItemName(schema, name).sql) == (schema, name)
    assert split_name(quote_part(name)) == (None, name)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", "a b", "`a", "``", "a:b", "a.`b"])
def test_a_text_that_is_no_name_is_refused(text: str) -> None:
    """Empty parts, three parts, loose spaces and open quotes are InvalidName."""
    with pytest.raises(InvalidName):
        split_name(text)


def test_only_odd_names_are_quoted_in_lists_and_all_in_sql() -> None:
    """Plain identifiers stay bare where people read them."""
    assert str(ItemName("s", "order lines")) == "s.`order lines`"
    assert ItemName("s", "t").sql == "`s`.`t`"
    assert quote_sql("tick`") == "`tick```"
    assert str(ItemKey("S", "function", "f")) == "function:S.f"
    assert str(ItemKey("S", "view", "V")) == "S.V"


def test_tables_and_views_share_one_namespace() -> None:
    """A table and a view of one name cannot coexist; a type of that name can."""
    view, table = ItemKey("S", "view", "X"), ItemKey("s", "table", "x")
    assert view.identity == table.identity == ("relation", "s", "x")
    assert ItemKey("s", "type", "x").identity == ("type", "s", "x")


def test_references_name_a_relation_unless_a_kind_stands_before_them() -> None:
    """``s.t`` is a relation, ``function:s.f`` a function, a bare name needs a default schema."""
    assert parse_reference("S.T") == ("relation", "s", "t")
    assert parse_reference("function:S.F") == ("function", "s", "f")
    assert parse_reference("t", "S") == ("relation", "s", "t")
    assert parse_reference("`a:b`.t") == ("relation", "a:b", "t")
    with pytest.raises(InvalidName, match="has no schema"):
        parse_reference("t")


def test_kinds_are_ordered_types_functions_tables_views_then_the_rest() -> None:
    """The tie-break of every order is (kind, folded schema, folded name)."""
    keys = [
        ItemKey("s", kind, "x") for kind in ("type", "function", "table", "view", "log", "topic")
    ]
    keys += [ItemKey("S", "topic", "Y"), ItemKey("t", "topic", "a")]
    shuffled = [keys[place] for place in (6, 3, 0, 7, 5, 1, 4, 2)]
    assert sorted(shuffled, key=order_key) == keys


def test_an_allocator_counts_on_from_its_counter() -> None:
    """Ids are handed out one by one and say their number."""
    allocator = Allocator("s", 9)
    assert [allocator.allocate(), allocator.allocate()] == ["s9", "s10"]
    assert allocator.next_value == 11
    assert number_of("s10") == 10
