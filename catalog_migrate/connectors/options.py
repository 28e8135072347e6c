"""The one validator of options: of a CREATE, and of what an ALTER would make of it.

Everything is pure and says all problems at once. Values that may be secrets never get into a
message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from catalog_migrate.connectors.base import find_connector
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import reveal
from catalog_migrate.connectors.sections import Section, SectionName, fold_option
from catalog_migrate.connectors.values import (
    BadValue,
    Option,
    When,
    canonical_value,
    splits_of,
    topics_of,
)
from catalog_migrate.errors import InvalidOptions, Problem, suggest
from catalog_migrate.model.objects import OptionValue, SecretRef
from catalog_migrate.sql.statements import BASE_CONNECTION, DropOptions, ResetOptions, SetOptions

UNKNOWN = "CM0711"
MISSING = "CM0712"
EXCLUSIVE = "CM0713"
NEEDS_SECRET = "CM0714"  # noqa: S105 - the code of a problem
NO_SECRET = "CM0715"  # noqa: S105 - the code of a problem
BAD_VALUE = "CM0716"
RESERVED = "CM0717"
NOT_ALTERABLE = "CM0718"
TWICE = "CM0719"

_SHOWN = 60


def section_of(connector: str, section: SectionName, *, where: str = "") -> Section:
    """The table of a connector's section.

    Raises ConnectorMissing when there is no such connector, InvalidOptions when it has no sources
    or no sinks.
    """
    kind = find_connector(connector)
    found = kind.section(section)
    if found is None:
        why = kind.without_source if section == "source" else kind.without_sink
        raise InvalidOptions(f"{_at(where)}{connector} has no {section}s: {why}")
    return found


def option_of(resolved: Resolved, connector: str, name: str) -> str | None:
    """The text of an option, its declared default when it is not set."""
    value = resolved.get(name)
    if value is not None:
        return reveal(value)
    option = find_connector(connector).connection.find(name)
    return None if option is None else option.default


def canonical_name(section: Section, written: str) -> str | None:
    """The one name of an option, setting or open option; None when there is none of that name."""
    option = section.find(written)
    if option is not None:
        return option.name
    if section.is_open(written.strip()):
        return written.strip().lower()
    return None


def check(
    connector: str, section: SectionName, options: Mapping[str, OptionValue], *,
    settings: Mapping[str, OptionValue] | None = None, where: str = "",
    inherited: Collection[str] = (), before: Mapping[str, OptionValue] | None = None,
) -> tuple[dict[str, OptionValue], dict[str, str]]:
    """The canonical (options, settings) of a whole definition, in the order of the tables.

    ``where`` names the item in messages (``connection s.c``). ``inherited`` is what the base of a
    connection gives: a mapping takes part in every rule as if written here (and is not returned);
    bare names count as set to something unknown. ``before`` is the definition that an ALTER starts
    from, so that the message about a missing option can say that the ALTER took it away; a name
    of the client's own that it has already is let pass, known or not.

    Raises InvalidOptions with all problems.
    """
    table = section_of(connector, section, where=where)
    problems: list[Problem] = []
    given, given_settings = _canonical(table, options, settings or {}, problems, before or ())
    base = _canonical_base(table, inherited)
    whole = {**base, **given, **given_settings}
    unknown = frozenset() if isinstance(inherited, Mapping) else frozenset(inherited) - set(given)
    from_base = frozenset(base) - set(given)
    # A value that is wrong in itself is no reason to complain about what goes with it too.
    broken = {option.name for option in _all(table)} & {
        canonical_name(table, name) or "" for name in (*options, *(settings or {}))
    } - set(given) - set(given_settings)
    for option in _all(table):
        problems += _rules(table, option, whole, unknown | broken, from_base, before)
    if problems:
        raise InvalidOptions(
            f"{_at(where)}the options do not make a {connector} {section}", problems=problems
        )
    order = {name: place for place, name in enumerate(table.names)}
    ranked = sorted(given, key=lambda name: (order.get(name, len(order)), name))
    return {name: given[name] for name in ranked}, {
        name: given_settings[name] for name in sorted(given_settings, key=order.__getitem__)
    }


def checked_values(
    connector: str, options: Mapping[str, OptionValue], *, where: str
) -> dict[str, OptionValue]:
    """Canonical names and values of a connection's options that are no whole definition.

    Each is checked for itself as :func:`check` does it; no rule between options is applied. Raises
    InvalidOptions with all problems.
    """
    problems: list[Problem] = []
    section = section_of(connector, "connection", where=where)
    found, _ = _canonical(section, options, {}, problems)
    if problems:
        raise InvalidOptions(f"{_at(where)}not every option can be set", problems=problems)
    return found


def effective(
    connector: str, options: Mapping[str, OptionValue], *, section: SectionName = "connection"
) -> dict[str, OptionValue]:
    """Canonical options or settings with the declared defaults of what is not set."""
    table = section_of(connector, section)
    defaults = {each.name: each.default for each in _all(table) if each.default is not None}
    return {**defaults, **options}


def complete_options(
    connector: str, section: SectionName, options: Mapping[str, OptionValue], *,
    connection: Mapping[str, OptionValue], before: Collection[str] | None = None,
) -> tuple[dict[str, OptionValue], dict[str, OptionValue]]:
    """Return ``options`` with what CREATE stores unasked (:attr:`Option.earlier`), and the rest.

    ``connection`` are the effective options of the connection used. ``before`` are the names that
    the definition has which is altered, None for a new one: what it lacks stays out, and goes on
    to mean what it meant; the second mapping says what that is.
    """
    table = section_of(connector, section)
    written = {canonical_name(table, name) for name in options}
    found: dict[str, OptionValue] = dict(options)
    absent: dict[str, OptionValue] = {}
    for option in _all(table):
        if option.earlier is None or option.name in written:
            continue
        value = connection.get(option.from_connection)
        given = value if value in option.choices else None
        if before is not None and option.name not in before:
            absent[option.name] = given or option.earlier
        else:
            found[option.name] = given or option.default or option.earlier
    return found, absent


def override_connection(
    connector: str, section: SectionName, options: Mapping[str, OptionValue]
) -> dict[str, str]:
    """Return what the options of a source or sink put in the place of its connection's."""
    table = section_of(connector, section)
    return {
        option.from_connection: str(options[option.name]) for option in _all(table)
        if option.from_connection and option.name in options
    }


def replaceable_options(connector: str) -> tuple[str, ...]:
    """Return the options of a connection that a source or sink may put its own in the place of."""
    found = find_connector(connector)
    sections = (found.section("source"), found.section("sink"))
    return tuple(sorted({
        option.from_connection for section in sections if section is not None
        for option in _all(section) if option.from_connection
    }))


def partition(
    connector: str, section: SectionName, values: Mapping[str, OptionValue]
) -> tuple[dict[str, OptionValue], dict[str, OptionValue]]:
    """(options, settings) of a mapping that holds both, as ``ALTER SOURCE … SET (…)`` does."""
    table = section_of(connector, section)
    settings = {name: value for name, value in values.items() if table.is_setting(name)}
    return {name: value for name, value in values.items() if name not in settings}, settings


def _touched_twice(written: str, earlier: str, verb: str) -> Problem:
    both = " twice" if earlier == verb else f" in {earlier} and {verb}"
    return Problem(TWICE, f"option {written} stands{both}", remedy="write it once")


def apply_actions(
    options: Mapping[str, OptionValue], actions: Iterable[SetOptions | DropOptions | ResetOptions],
    *, connector: str | None = None, section: SectionName = "connection", where: str = "",
) -> dict[str, OptionValue]:
    """What SET, DROP and RESET make of ``options``; nothing is validated but the names.

    DROP and RESET both take the written value away: what then holds is the base's value, else the
    declared default, else none. Neither minds an option that is not set. With ``connector`` names
    become canonical and those that it does not know are refused. ``USING CONNECTION`` passes as
    if it were an option. Raises InvalidOptions when one option is touched twice.
    """
    table = None if connector is None else section_of(connector, section, where=where)
    result = dict(options)
    stored = {fold_option(name): name for name in options}
    touched: dict[str, str] = {}
    problems: list[Problem] = []
    for action in actions:
        verb, names = _verb(action)
        for written in names:
            folded = fold_option(written)
            if folded in touched:
                problems.append(_touched_twice(written, touched[folded], verb))
                continue
            touched[folded] = verb
            before = stored.get(folded)
            name = before or written
            if table is not None and folded != BASE_CONNECTION:
                # what is stored may be taken away though it is unknown now
                known = canonical_name(table, written) or (None if verb == "SET" else before)
                if known is None:
                    problems.append(_unknown(table, written))
                    continue
                name = known
            result.pop(before or name, None)
            if isinstance(action, SetOptions):
                result[name] = action.options[written]
    if problems:
        raise InvalidOptions(f"{_at(where)}the changes do not fit together", problems=problems)
    return result


def rotate_keys(
    connector: str, options: Mapping[str, OptionValue], *, where: str = ""
) -> dict[str, OptionValue]:
    """``options`` after ROTATE KEYS: the next key takes the place of the one in use.

    Raises InvalidOptions for a type without keys, and when there is no next one.
    """
    rotation = section_of(connector, "connection", where=where).rotation
    if rotation is None:
        raise InvalidOptions(
            f"{_at(where)}{connector} has no keys to rotate",
            remedy="SET the option that holds the key or the password",
        )
    current, following = rotation
    if following not in options:
        raise InvalidOptions(
            f"{_at(where)}there is no {following} that could take the place of {current}",
            remedy=f"SET ({following} SECRET …) with a new key, let the server know its public one,"
            " then ROTATE KEYS",
        )
    rest = {name: value for name, value in options.items() if name != following}
    return {**rest, current: options[following]}


def diff(before: Mapping[str, OptionValue], after: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """The options that differ between two canonical (better: effective) sets, by name."""
    names = sorted({*before, *after})
    return tuple(name for name in names if before.get(name) != after.get(name))


def alterable(
    connector: str, section: SectionName, names: Iterable[str], *, where: str = ""
) -> None:
    """Raise InvalidOptions when one of ``names`` cannot be changed in place, with the reasons."""
    table = section_of(connector, section, where=where)
    problems = []
    for name in names:
        option = table.find(name)
        if option is None and not table.is_open(name):
            problems.append(_unknown(table, name))
        elif option is not None and not option.alterable:
            problems.append(
                Problem(
                    NOT_ALTERABLE,
                    f"option {option.name} cannot be altered: {option.fixed_because}",
                )
            )
    if problems:
        raise InvalidOptions(f"{_at(where)}not every option can be altered", problems=problems)


# -- single values ---------------------------------------------------------------------------------


def _canonical(
    table: Section, options: Mapping[str, OptionValue], settings: Mapping[str, OptionValue],
    problems: list[Problem], present: Collection[str] = (),
) -> tuple[dict[str, OptionValue], dict[str, str]]:
    """Canonical names and values of what is right in itself; the rest goes to ``problems``.

    ``present`` are names that the definition has already.
    """
    found: dict[str, OptionValue] = {}
    found_settings: dict[str, str] = {}
    seen: set[str] = set()
    for written, value, as_setting in (
        *((name, value, False) for name, value in options.items()),
        *((name, value, True) for name, value in settings.items()),
    ):
        name = _known_name(table, written, present, problems)
        if name is None:
            continue
        if name in seen:
            problems.append(Problem(TWICE, f"option {name} is given twice", remedy="write it once"))
            continue
        seen.add(name)
        if table.is_setting(name) != as_setting:
            place = "after WITH" if not as_setting else "in the parentheses of the connection"
            problems.append(
                Problem(UNKNOWN, f"{name} does not belong here", remedy=f"write it {place}")
            )
            continue
        checked = _value(table, name, value, problems)
        if checked is None:
            continue
        if as_setting and isinstance(checked, str):
            found_settings[name] = checked
        else:
            found[name] = checked
    return found, found_settings


def _known_name(
    table: Section, written: str, present: Collection[str], problems: list[Problem]
) -> str | None:
    """The canonical name, None after a problem was noted."""
    name = canonical_name(table, written)
    if name is None:
        problems.append(_unknown(table, written))
        return None
    of_client = table.is_open(name) and table.reserved_for(name) is None
    if of_client and not table.knows(name) and name not in present:
        problems.append(_unknown(table, written, of_client=True))
        return None
    return name


def _value(
    table: Section, name: str, value: OptionValue, problems: list[Problem]
) -> OptionValue | None:
    """The canonical value, None after a problem was noted."""
    option = table.find(name)
    if option is None:
        return _open_value(table, name, value, problems)
    if isinstance(value, SecretRef):
        if option.secret == "never":  # noqa: S105 - a rule
            problems.append(
                Problem(
                    NO_SECRET, f"option {name} takes no secret",
                    remedy=f"write {name} '{option.example}'",
                )
            )
            return None
        return value
    if option.secret == "must":  # noqa: S105 - a rule
        problems.append(
            Problem(
                NEEDS_SECRET,
                f"option {name} takes a secret, not a text (the text is not shown)",
                remedy=f"CREATE SECRET {option.example} AS 'env:NAME', then write "
                f"{name} SECRET {option.example}",
            )
        )
        return None
    try:
        return canonical_value(option, value)
    except BadValue as error:
        # what may be a secret is not shown, nor what might hold one by mistake
        hidden = option.secret != "never" or "@" in value or len(value) > _SHOWN  # noqa: S105
        shown = "" if hidden else f", not {value!r}"
        problems.append(
            Problem(
                BAD_VALUE, f"option {name}: {error}{shown}",
                remedy=f"for example {name} '{option.example}'",
            )
        )
        return None


def _open_value(
    table: Section, name: str, value: OptionValue, problems: list[Problem]
) -> OptionValue | None:
    """An option of the client's own: plain text, and none that the tables have a word for."""
    reserved = table.reserved_for(name)
    if reserved is not None:
        problems.append(
            Problem(RESERVED, f"option {name} is not free", remedy=f"use {reserved.instead}")
        )
        return None
    if isinstance(value, SecretRef):
        problems.append(
            Problem(
                NO_SECRET, f"option {name} takes no secret", remedy="only declared options take one"
            )
        )
        return None
    if "\0" in value:
        problems.append(Problem(BAD_VALUE, f"option {name}: a text without zero bytes is expected"))
        return None
    return value


# -- rules between options -------------------------------------------------------------------------


def _rules(
    table: Section, option: Option, whole: Mapping[str, OptionValue], unknown: Collection[str],
    from_base: Collection[str], before: Mapping[str, OptionValue] | None,
) -> list[Problem]:
    """The problems of one option with the others; options with unknown values are let pass."""
    if option.name in whole:
        return _other_topics(option, whole) + [
            _exclusive(option, when, from_base)
            for when in option.exclusive_with
            if _holds(table, when, whole, unknown)
        ]
    if option.name in unknown:
        return []
    reason = _why_required(table, option, whole, unknown)
    return [] if reason is None else [_missing(option, reason, before)]


def _why_required(
    table: Section, option: Option, whole: Mapping[str, OptionValue], unknown: Collection[str]
) -> str | None:
    if option.required:
        return "is required"
    if any(_holds(table, when, whole, unknown) for when in option.exclusive_with):
        return None
    return next(
        (f"is required when {when}" for when in option.required_when
         if _holds(table, when, whole, unknown)), None,
    )


def _missing(option: Option, reason: str, before: Mapping[str, OptionValue] | None) -> Problem:
    taken = before is not None and option.name in before
    message = f"option {option.name} {reason}" + (" and would be taken away" if taken else "")
    if option.secret == "must":  # noqa: S105 - a rule
        example = f"{option.name} SECRET {option.example}"
    else:
        example = f"{option.name} '{option.example}'"
    verb = "leave it, or SET" if taken else ("SET" if before is not None else "write")
    return Problem(MISSING, message, remedy=f"{verb} {example}", option=option.name)


def _holds(
    table: Section, when: When, whole: Mapping[str, OptionValue], unknown: Collection[str]
) -> bool:
    """Whether a condition is known to hold, declared defaults included."""
    if not when.values:
        return when.option in whole
    if when.option in unknown:
        return False
    other = table.find(when.option)
    value = whole.get(when.option, other.default if other is not None else None)
    return isinstance(value, str) and value in when.values


def _other_topics(option: Option, whole: Mapping[str, OptionValue]) -> list[Problem]:
    """Of partitions whose topic is not among those that are read."""
    if option.value != "splits" or "TOPIC" not in whole:
        return []
    topics = topics_of(str(whole["TOPIC"]))
    named = sorted({topic for topic, _ in splits_of(str(whole[option.name]))} - set(topics))
    return [
        Problem(
            BAD_VALUE, f"option {option.name}: topic {topic} is none of TOPIC",
            remedy="name partitions of " + " or ".join(topics),
        )
        for topic in named
    ]


def _exclusive(option: Option, when: When, from_base: Collection[str]) -> Problem:
    origins = [name for name in (option.name, when.option) if name in from_base]
    note = f" ({' and '.join(origins)} from the connection used)" if origins else ""
    return Problem(
        EXCLUSIVE,
        f"option {option.name} does not go together with "
        f"{when.option} {' or '.join(when.values)}".rstrip()
        + note,
        remedy=f"leave out {option.name}, or change {when.option}",
    )


# -- words -----------------------------------------------------------------------------------------


def _canonical_base(table: Section, inherited: Collection[str]) -> dict[str, OptionValue]:
    if not isinstance(inherited, Mapping):
        return {}
    return {canonical_name(table, name) or name: value for name, value in inherited.items()}


def _all(table: Section) -> tuple[Option, ...]:
    return (*table.options, *table.settings)


def _unknown(table: Section, written: str, *, of_client: bool = False) -> Problem:
    if of_client:
        prefix = table.open_prefix or ""
        return Problem(
            UNKNOWN, f"there is no option {written[:_SHOWN]}: {table.client} do not know it",
            remedy=suggest(
                written.lower()[len(prefix):],
                {name: prefix + name for name in sorted(table.open_names or ())},
                f"the documentation of {table.client} lists theirs", most=3,
            ),
        )
    names: Sequence[str] = table.names
    others = "" if table.open_prefix is None else f" and {table.open_prefix}*"
    remedy = suggest(
        fold_option(written), names, f"there are {', '.join(names)}{others}", most=3, cutoff=0.5
    )
    return Problem(UNKNOWN, f"there is no option {written[:_SHOWN]}", remedy=remedy)


def _verb(action: SetOptions | DropOptions | ResetOptions) -> tuple[str, tuple[str, ...]]:
    if isinstance(action, SetOptions):
        return "SET", tuple(action.options)
    return ("DROP" if isinstance(action, DropOptions) else "RESET"), action.names


def _at(where: str) -> str:
    return f"{where}: " if where else ""
