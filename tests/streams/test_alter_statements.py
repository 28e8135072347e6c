"""Every statement of ALTER CONNECTION for every type, made from the option tables alone.

After Materialize's list for its ALTER CONNECTION: SET, DROP, RESET, sets that exclude each other,
IF EXISTS, VALIDATE. A type or an option that comes along is covered by being in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import Connector, connector_names, find_connector
from catalog_migrate.connectors.values import Option
from catalog_migrate.errors import InvalidOptions, RefusedStatement
from catalog_migrate.model.objects import External, OptionValue, SecretRef
from catalog_migrate.sql import statements as st
from catalog_migrate.sql.parser import parse_one
from catalog_migrate.sql.printer import render
from catalog_migrate.streams.catalog import dependencies
from tests.connections.test_kinds import CELLS, Cell, context, example, holds, wrong

Values = Mapping[str, OptionValue]
CONNECTORS = {name: find_connector(name) for name in connector_names()}

cells = [cell for cell in CELLS if cell.section == "connection"]
every_cell = pytest.mark.parametrize("cell", cells, ids=str)
every_type = pytest.mark.parametrize("connector", CONNECTORS.values(), ids=lambda each: each.name)


class Setting:
    """A catalog with a connection ``c``, altered by statements as they are printed."""

    def __init__(self, do: Callable[[str], list[Any]], state: Callable[[], State]) -> None:
        self.do, self.state = do, state

    def create(self, connector: Connector, values: Values, name: str = "c") -> None:
        """CREATE CONNECTION, after what its options name."""
        self.named(connector, values)
        external = External(connector=connector.name, options=dict(values))
        self.do(render(st.CreateConnection(name, external)))

    def named(self, connector: Connector, values: Values) -> None:
        """The secrets and connections that options name."""
        for name, value in values.items():
            option = connector.connection.find(name)
            if isinstance(value, SecretRef):
                self.do(f"CREATE SECRET IF NOT EXISTS {value.secret} AS 'env:X'")
            elif option is not None and option.value == "connection":
                used = CONNECTORS[name]
                if dependencies.lookup(self.state(), "connection", value) is None:
                    first = next(each for each in used.connection.options if each.required)
                    self.create(used, context(used.connection, first), value)

    def alter(self, *actions: st.Action, name: str = "c", **more: Any) -> Any:
        """ALTER CONNECTION, printed and read back; its effect."""
        (effect,) = self.do(render(st.AlterConnection(name, actions, **more)))
        return effect

    def refused(self, *actions: st.Action) -> str:
        """What an ALTER says that changes nothing."""
        version = self.state().version
        with pytest.raises((InvalidOptions, RefusedStatement)) as caught:
            self.alter(*actions)
        assert self.state().version == version
        return f"{caught.value} {getattr(caught.value, 'problems', ())}"

    def options(self, name: str = "c") -> dict[str, OptionValue]:
        """The options of a connection, as they are kept."""
        return dict(dependencies.find(self.state(), "connection", name).external.options)


@pytest.fixture
def it(do: Any, state: Any) -> Setting:
    """An empty catalog."""
    return Setting(do, state)


OTHERS = {
    "path": "/another/place", "text": "another", "integer": "1", "host": "other.example.com",
    "addresses": "other.example.com:1", "url": "https://other.example.com/", "pairs": "other=1",
}
"""Values of some kinds that are no example."""


def other_value(option: Option) -> OptionValue:
    """Another right value than the example; the example itself where none is known."""
    if option.secret == "must":
        return SecretRef("another")
    choices = [each for each in option.choices if each != option.example]
    return choices[0] if choices else OTHERS.get(option.value, option.example)


@every_cell
def test_set_drop_reset(it: Setting, cell: Cell) -> None:
    """SET makes what a CREATE with the option makes; DROP and RESET what one without it makes.

    Where a CREATE without it is refused, so are they, with the option's name.
    """
    name, full = cell.option.name, context(cell.table, cell.option)
    without = {each: value for each, value in full.items() if each != name}
    it.create(cell.connector, full, "whole")
    whole = it.options("whole")
    it.create(cell.connector, full if wrong(cell.table, without) else without)
    start = it.options()
    taken: tuple[st.Action, ...] = (st.DropOptions((name,)), st.ResetOptions((name,)))
    if wrong(cell.table, without):
        for action in taken:
            assert name in it.refused(action)
        return
    setting = st.SetOptions({name: full[name]})
    if not cell.option.alterable:
        assert cell.option.fixed_because in it.refused(setting)
        return
    for action in taken:
        assert it.alter(setting).updates
        assert it.options() == whole
        assert it.alter(setting).updates == (), "it is so already"
        assert it.alter(action).updates
        assert it.options() == start
        assert it.alter(action).updates == ()


@every_cell
def test_another_value(it: Setting, cell: Cell) -> None:
    """SET of another value is an ALTER, or is refused with the reason of the table."""
    name, full = cell.option.name, context(cell.table, cell.option)
    value = other_value(cell.option)
    after = {**full, name: value}
    if value == full[name] or wrong(cell.table, after):
        pytest.skip("the table gives no other value that goes with the rest")
    it.create(cell.connector, full)
    it.named(cell.connector, after)
    if not cell.option.alterable:
        assert cell.option.fixed_because in it.refused(st.SetOptions({name: value}))
        return
    it.alter(st.SetOptions({name: value}))
    it.create(cell.connector, after, "whole")
    assert it.options() == it.options("whole")


def exclusions() -> Iterator[Any]:
    """Each option with each value of another that it does not go together with."""
    for cell in cells:
        for when in cell.option.exclusive_with:
            for value in when.values or ("",):
                label = f"{cell}-{when.option}-{value}".replace(" ", "_")
                yield pytest.param(cell, when.option, value, id=label)


@pytest.mark.parametrize(("cell", "other", "value"), exclusions())
def test_sets_that_exclude_each_other(
    it: Setting, cell: Cell, other: str, value: str
) -> None:
    """Alone it is refused with both names; with what must go and come along it is one ALTER."""
    full = context(cell.table, cell.option)
    it.create(cell.connector, full)
    found = cell.table.find(other)
    assert found is not None
    setting: dict[str, OptionValue] = {other: value or example(found)}
    said = it.refused(st.SetOptions(setting))
    assert cell.option.name in said
    assert other in said

    after = {**full, **setting}
    for _ in range(10):  # what must go, then what must come, until the table agrees
        broken = sorted(wrong(cell.table, after))
        gone = [name for code, name in broken if code == "CM0713" and name not in setting]
        for name in gone:
            after.pop(name)
        for code, name in broken if not gone else ():
            option = cell.table.find(name)
            assert option is not None
            assert code == "CM0712"
            fitting = [
                choice for choice in option.choices
                if not wrong(cell.table, {**after, name: choice}) & {("CM0713", name)}
            ]
            after[name] = fitting[0] if fitting else example(option)
        if not broken:
            break
    it.named(cell.connector, after)
    new = {name: each for name, each in after.items() if full.get(name) != each}
    it.alter(st.SetOptions(new), st.DropOptions(tuple(name for name in full if name not in after)))
    it.create(cell.connector, after, "whole")
    assert it.options() == it.options("whole")
    assert not any(
        holds(cell.table, when, it.options()) for when in cell.option.exclusive_with
        if cell.option.name in it.options()
    )


@every_type
def test_forms(it: Setting, connector: Connector) -> None:
    """IF EXISTS, AS, VALIDATE, several actions, slips: for each type alike."""
    free = next(
        option for option in connector.connection.options
        if option.alterable and option.secret != "must" and option.value != "connection"
    )
    full = context(connector.connection, free)
    it.create(connector, full)
    same = st.SetOptions({free.name: full[free.name]})
    assert it.alter(same, name="nope", if_exists=True).updates == ()
    assert it.alter(same, if_exists=True, connector=connector.name).updates == ()
    for validate in (True, False):
        statement = render(st.AlterConnection("c", (same,), validate=validate))
        assert getattr(parse_one(statement), "validate", None) is validate
    another = next(each for each in CONNECTORS if each != connector.name)
    with pytest.raises(RefusedStatement, match=f"is {connector.name}, the statement says AS"):
        it.alter(same, connector=another)
    assert "SET and DROP" in it.refused(same, st.DropOptions((free.name,)))
    twice = st.DropOptions((free.name,)), st.ResetOptions((free.name,))
    assert "DROP and RESET" in it.refused(*twice)
    assert "there is no option" in it.refused(st.SetOptions({"NO SUCH OPTION": "x"}))
    assert parse_one("VALIDATE CONNECTION c;") == st.ValidateConnection("c")
    it.do("ALTER CONNECTION c RENAME TO d; COMMENT ON CONNECTION d IS 'x'; DROP CONNECTION d")
