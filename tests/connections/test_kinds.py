"""The tables themselves, and the matrix that they promise: type × option × SET, DROP, RESET."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from catalog_migrate.connectors.base import Connector, connector_names, find_connector
from catalog_migrate.connectors.options import alterable, apply_actions, check, partition
from catalog_migrate.connectors.sections import Section, SectionName
from catalog_migrate.connectors.values import Option, When
from catalog_migrate.errors import InvalidOptions
from catalog_migrate.model.objects import OptionValue, SecretRef
from catalog_migrate.sql.statements import DropOptions, ResetOptions, SetOptions

Values = dict[str, OptionValue]
CONNECTORS = {name: find_connector(name) for name in connector_names()}


@dataclass(frozen=True)
class Cell:
    """One option of one section of one type."""

    connector: Connector
    section: SectionName
    table: Section
    option: Option

    def __str__(self) -> str:
        return f"{self.connector.name}-{self.section}-{self.option.name.replace(' ', '_')}"


def cells() -> Iterator[Cell]:
    """Every declared option and setting."""
    for connector in CONNECTORS.values():
        for name in ("connection", "source", "sink"):
            table = connector.section(name)
            if table is not None:
                for option in (*table.options, *table.settings):
                    yield Cell(connector, name, table, option)


CELLS = list(cells())
every_cell = pytest.mark.parametrize("cell", CELLS, ids=str)


def example(option: Option) -> OptionValue:
    """A right value, as the table shows it."""
    return SecretRef(option.example) if option.secret == "must" else option.example


def holds(table: Section, when: When, values: Mapping[str, OptionValue]) -> bool:
    """The oracle's reading of a condition."""
    defaults = {each.name: each.default for each in (*table.options, *table.settings)}
    if not when.values:
        return when.option in values
    return values.get(when.option, defaults[when.option]) in when.values


def wrong(table: Section, values: Mapping[str, OptionValue]) -> set[tuple[str, str]]:
    """The oracle: (code, option) of every rule that the declared properties say is broken."""
    found = set()
    for option in (*table.options, *table.settings):
        if option.name in values:
            if any(holds(table, when, values) for when in option.exclusive_with):
                found.add(("CM0713", option.name))
        elif option.required or (
            any(holds(table, when, values) for when in option.required_when)
            and not any(holds(table, when, values) for when in option.exclusive_with)
        ):
            found.add(("CM0712", option.name))
    return found


def context(table: Section, option: Option) -> Values:
    """A whole definition in which ``option`` is set, made from the declarations alone."""
    by_name = {each.name: each for each in (*table.options, *table.settings)}
    values: Values = {option.name: example(option)}
    for _ in range(10):
        for name, when in [(n, w) for n in list(values) for w in by_name[n].exclusive_with]:
            if not holds(table, when, values):
                continue
            if name != option.name and not by_name[name].choices:
                values.pop(name, None)  # what an earlier round had to add
                continue
            free = [c for c in by_name[when.option].choices if c not in when.values]
            values[when.option] = free[-1]
        for code, name in sorted(wrong(table, values)):
            if code == "CM0712":
                values[name] = example(by_name[name])
        if not wrong(table, values):
            return values
    raise AssertionError(f"the table allows no definition with {option.name}")


def outcome(cell: Cell, values: Values) -> set[tuple[str, str]]:
    """What the validator says of a whole definition: (code, option) of each problem."""
    options, settings = partition(cell.connector.name, cell.section, values)
    try:
        check(cell.connector.name, cell.section, options, settings=settings, where="connection c")
    except InvalidOptions as error:
        found = set()
        for problem in error.problems:
            names = sorted(cell.table.names, key=len, reverse=True)
            about = problem.message.removeprefix("option ")
            name = next(each for each in names if about.startswith((f"{each} ", f"{each}:")))
            found.add((problem.code, name))
        return found
    return set()


class TestMatrix:
    """Each cell's outcome follows from what the table declares."""

    @every_cell
    def test_set(self, cell: Cell) -> None:
        """SET of a right value gives the definition with that value, and nothing else changes."""
        full = context(cell.table, cell.option)
        without = {name: value for name, value in full.items() if name != cell.option.name}
        action = SetOptions({cell.option.name.lower(): full[cell.option.name]})
        after = apply_actions(
            without, [action], connector=cell.connector.name, section=cell.section
        )
        assert after == full
        assert outcome(cell, after) == set()

    @every_cell
    @pytest.mark.parametrize("verb", [DropOptions, ResetOptions])
    def test_drop_and_reset(self, cell: Cell, verb: type[DropOptions] | type[ResetOptions]) -> None:
        """DROP and RESET take the value away; exactly the declared rules then complain."""
        full = context(cell.table, cell.option)
        after = apply_actions(
            full, [verb((cell.option.name,))], connector=cell.connector.name, section=cell.section
        )
        assert after == {name: value for name, value in full.items() if name != cell.option.name}
        expected = wrong(cell.table, after)
        assert outcome(cell, after) == expected
        if cell.option.required:
            assert ("CM0712", cell.option.name) in expected

    @every_cell
    def test_alterable(self, cell: Cell) -> None:
        """ALTER is refused exactly for options that are declared fixed, with the reason."""
        if cell.option.alterable:
            alterable(cell.connector.name, cell.section, [cell.option.name])
            return
        with pytest.raises(InvalidOptions) as caught:
            alterable(cell.connector.name, cell.section, [cell.option.name])
        assert [problem.code for problem in caught.value.problems] == ["CM0718"]
        assert cell.option.fixed_because in caught.value.problems[0].message

    @every_cell
    def test_secret_rule(self, cell: Cell) -> None:
        """Text where a secret must be and a secret where none can be are refused, both ways."""
        full = context(cell.table, cell.option)
        name = cell.option.name
        with_text = outcome(cell, {**full, name: "MARKER-of-a-value"})
        with_secret = outcome(cell, {**full, name: SecretRef("s")})
        assert (("CM0714", name) in with_text) == (cell.option.secret == "must")
        assert (("CM0715", name) in with_secret) == (cell.option.secret == "never")

    @every_cell
    def test_typing_error(self, cell: Cell) -> None:
        """A name with a letter missing is refused, and the right name is offered."""
        misspelt = cell.option.name[:-1]
        with pytest.raises(InvalidOptions) as caught:
            apply_actions({}, [DropOptions((misspelt,))], connector=cell.connector.name,
                          section=cell.section)
        if cell.table.find(misspelt) is None:
            assert cell.option.name in str(caught.value.problems[0].remedy)


class TestTables:
    """What holds of every table."""

    def test_types(self) -> None:
        """There are five types."""
        assert tuple(CONNECTORS) == (
            "KAFKA", "POSTGRES", "FILES", "SCHEMA REGISTRY", "SSH TUNNEL",
        )

    @every_cell
    def test_complete(self, cell: Cell) -> None:
        """Each option explains itself, and shows a value and a reason where one is needed."""
        option = cell.option
        assert option.help.endswith(".")
        assert option.example
        assert option.alterable or option.fixed_because
        assert (option.value == "choice") == bool(option.choices)
        assert option.default is None or not option.choices or option.default in option.choices
        for when in (*option.required_when, *option.exclusive_with):
            other = cell.table.find(when.option)
            assert other is not None
            assert set(when.values) <= set(other.choices)

    @pytest.mark.parametrize("connector", CONNECTORS.values(), ids=lambda each: each.name)
    def test_names_are_told_apart(self, connector: Connector) -> None:
        """No name stands twice in a section, as option or setting, whatever its spelling."""
        for name in ("connection", "source", "sink"):
            table = connector.section(name)
            if table is not None:
                folded = [each.replace("_", " ").upper() for each in table.names]
                assert len(set(folded)) == len(folded)
                assert folded == list(table.names)
