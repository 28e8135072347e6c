"""What hangs on what: connections by inheritance, queries by their links (pure, on the state).

Names in a definition are as they were written; everything here follows ``ItemRecord.links``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from catalog_migrate.catalog.records import ItemRecord, MappingRecord, identity_text
from catalog_migrate.catalog.state import State
from catalog_migrate.connectors.base import find_if_installed, may_have_row_keys
from catalog_migrate.connectors.options import diff
from catalog_migrate.errors import RefusedStatement, UnknownItem
from catalog_migrate.model.names import Identity, ItemKey, namespace_of, split_name
from catalog_migrate.model.objects import (
    CLUSTER_KINDS,
    External,
    ObjectDefinition,
    OptionValue,
    SecretRef,
)
from catalog_migrate.model.paths import shard_location
from catalog_migrate.model.walks import chain
from catalog_migrate.model.wording import join_some
from catalog_migrate.sql.statements import USED_CONNECTIONS

DEFAULT_SCHEMA = "default"
"""Schema of a name that is written without one."""

OVERRIDE = "override:"
"""Roles of links to the secrets of overrides are this and the option's name."""

REGISTRY = "registry"
"""Role of the link to the connection of a format's schema registry."""

SECRET = "secret:"  # noqa: S105 - the prefix of a role, not a secret
"""Roles of links to secrets are this and the option's name."""

OUTPUT = "table:"
"""Roles of links to the tables that a POSTGRES source writes are this and the upstream's name."""


USING = "using:"
"""Roles of links to connections that an option names (SSH TUNNEL) are this and the option's name.
"""


class CatalogEntry(msgspec.Struct, frozen=True):
    """An object by its name: mapping and item."""

    mapping: MappingRecord
    item: ItemRecord

    @property
    def item_id(self) -> str:
        """The id for life."""
        return self.mapping.item_id

    @property
    def external(self) -> External:
        """What it declares beyond columns."""
        return external_of(self.item)

    @property
    def text(self) -> str:
        """For messages: ``connection default.c``."""
        return f"{self.mapping.kind} {self.item.definition.item_name}"


def external_of(item: ItemRecord) -> External:
    """Return the external part of an item, empty for tables and views."""
    return item.definition.external or External()


def as_called_now(state: State, item: ItemRecord) -> External:
    """What an item declares, with the present name of whatever was renamed since it was written.

    A definition that is checked anew is linked by its names: an old one would lead nowhere, or to
    something else that has it now.
    """
    external = external_of(item)

    def name_now(kind: str, written: str, role: str) -> str:
        link = item.links.get(role)
        if link is None:
            return written
        found = state.mappings.get(identity_text(identity_of(kind, written)))
        return written if found is not None and found.item_id == link else display(state, link)

    options: dict[str, OptionValue] = {}
    for name, value in external.options.items():
        if isinstance(value, SecretRef):
            options[name] = SecretRef(name_now("secret", value.secret, SECRET + name))
        else:
            options[name] = name_now("connection", value, USING + name)
    return msgspec.structs.replace(
        external, options=options,
        connection=external.connection
        and name_now("connection", external.connection, "connection"),
        registry=external.registry and name_now("connection", external.registry, REGISTRY),
    )


def identity_of(kind: str, name: str) -> tuple[str, str, str]:
    """The identity that a name as written stands for."""
    schema, last = split_name(name)
    return namespace_of(kind), (schema or DEFAULT_SCHEMA).lower(), last.lower()


def lookup(state: State, kind: str, name: str) -> CatalogEntry | None:
    """Return the object of ``kind`` called ``name``; None when nothing has that name.

    ``kind`` ``relation`` finds a table, view or source. Raises :class:`UnknownItem` when the name
    belongs to another kind of the same namespace.
    """
    looked_up = "table" if kind == "relation" else kind
    mapping = state.mappings.get(identity_text(identity_of(looked_up, name)))
    if mapping is None:
        return None
    if kind != "relation" and mapping.kind != kind:
        raise UnknownItem(
            f"{mapping.key} is a {mapping.kind}, not a {kind}",
            remedy=f"name a {kind}; SHOW {kind.upper()}S lists them",
        )
    return CatalogEntry(mapping, state.items[mapping.item_id])


def find(state: State, kind: str, name: str) -> CatalogEntry:
    """:func:`lookup`, or :class:`UnknownItem` with the nearest names."""
    found = lookup(state, kind, name)
    if found is not None:
        return found
    names = sorted(
        str(mapping.key.item_name) for mapping in state.mappings.values()
        if mapping.kind == kind
        or (kind == "relation" and namespace_of(mapping.kind) == namespace_of("table"))
    )
    other = _elsewhere(state, kind, name)
    near = _near(name, names) if not other else []
    raise UnknownItem(
        f"there is no {kind} called {name}",
        remedy="did you mean " + " or ".join(near) + "?" if near
        else f"{other}the {kind}s of this catalog: {join_some(names, _LISTED) or 'none'}; "
        "create it when it is missing",
    )


_LISTED = 10


def _elsewhere(state: State, kind: str, name: str) -> str:
    """That a query of the other kind has the name, in words."""
    other = {"source": "sink", "sink": "source"}.get(kind)
    if other is None or identity_text(identity_of(other, name)) not in state.mappings:
        return ""
    return f"it is a {other}; "


def _near(name: str, names: list[str]) -> list[str]:
    """At most three names that were probably meant: nearly the same, or that in another schema.

    The last part decides: that a schema is the same says nothing.
    """
    from difflib import SequenceMatcher, get_close_matches

    schema, last = split_name(name)
    lasts: dict[str, list[str]] = {}
    for each in names:
        lasts.setdefault(split_name(each)[1].lower(), []).append(each)
    meant = get_close_matches(last.lower(), lasts, n=5, cutoff=0.65)
    written = f"{schema or DEFAULT_SCHEMA}.{last}"
    return sorted(
        (each for found in meant for each in lasts[found]),
        key=lambda each: -SequenceMatcher(None, written, each).ratio(),
    )[:3]


def by_id(state: State, item_id: str) -> CatalogEntry:
    """Return an object by its id; KeyError when it was dropped."""
    item = state.items[item_id]
    return CatalogEntry(state.mappings[identity_text(item.definition.identity)], item)


def display(state: State, item_id: str) -> str:
    """``schema.name`` of an item, its id when it is gone."""
    item = state.items.get(item_id)
    return str(item.definition.item_name) if item is not None else item_id


def outputs(item: ItemRecord) -> tuple[str, ...]:
    """The tables that a query writes beside the source's own, by item id: one for each table
    upstream, and that of ON ERROR INTO."""
    return tuple(
        item_id for role, item_id in item.links.items()
        if role == "dead_letters" or role.startswith(OUTPUT)
    )


# -- connections -----------------------------------------------------------------------------------


def location(state: State, path: str) -> str:
    """Return the absolute directory of a shard or a checkpoint that is on record by its path."""
    return shard_location(state.setting("warehouse"), path)


class Effective(msgspec.Struct, frozen=True):
    """A connection with everything it inherits.

    ``options`` by canonical name; ``secrets`` the secret's item id by option, ``uses`` that of the
    connection that an option names; ``chain`` the item ids from the connection to its last base.
    """

    connector: str
    options: Mapping[str, OptionValue]
    secrets: Mapping[str, str]
    chain: tuple[str, ...]
    uses: Mapping[str, str] = {}


def all_options(definition: ObjectDefinition) -> dict[str, OptionValue]:
    """Everything that a source or sink sets: options, settings, and what it overrides."""
    external = definition.external or External()
    return {**external.overrides, **external.options, **external.settings}


def compare_options(before: ObjectDefinition, now: ObjectDefinition) -> str:
    """Return which options differ, by name and in words; without values."""
    names = diff(all_options(before), all_options(now))
    return ", ".join(names) or "its definition"


def effective(state: State, connection_id: str) -> Effective:
    """Resolve a connection's inheritance: what it does not set comes from its base."""
    options: dict[str, OptionValue] = {}
    secrets: dict[str, str] = {}
    uses: dict[str, str] = {}
    connector = ""
    inherited = chain(connection_id, lambda each: state.items[each].links.get("connection"))
    for each in inherited:
        item = state.items[each]
        external = external_of(item)
        connector = connector or (external.connector or "")
        for name, value in external.options.items():
            if name not in options:
                options[name] = value
                if isinstance(value, SecretRef):
                    secrets[name] = item.links[SECRET + name]
                elif name in USED_CONNECTIONS:
                    uses[name] = item.links[USING + name]
    return Effective(connector, options, secrets, tuple(inherited), uses)


def stands_on(state: State, connection_id: str) -> frozenset[str]:
    """Everything that a connection is made of: itself, its bases, secrets, tunnels and theirs."""
    whole = effective(state, connection_id)
    tunnels = [effective(state, used) for used in whole.uses.values()]
    return frozenset(
        item_id for each in (whole, *tunnels) for item_id in (*each.chain, *each.secrets.values())
    )


# -- queries ---------------------------------------------------------------------------------------


def is_query(item: ItemRecord) -> bool:
    """Return whether an item runs as a query of a cluster."""
    return item.definition.kind in CLUSTER_KINDS and item.quarantined is None


def queries(state: State, cluster: str | None = None) -> Iterator[CatalogEntry]:
    """Sources and sinks (of one cluster, by its item id), by item id's number."""
    for mapping in sorted(state.mappings.values(), key=lambda m: int(m.item_id[1:])):
        item = state.items[mapping.item_id]
        if is_query(item) and (cluster is None or item.links.get("cluster") == cluster):
            yield CatalogEntry(mapping, item)


def skips_changes(sink: ItemRecord) -> bool:
    """Whether a sink passes over UPDATE, DELETE and MERGE of what it reads (ON CHANGE 'skip')."""
    return external_of(sink).settings.get("ON CHANGE") == "skip"


def must_only_grow(state: State, sinks: Iterable[str]) -> frozenset[str]:
    """Items of the tables that must be append-only, because one of these sinks reads them."""
    found = set()
    for item_id in sinks:
        item = state.items.get(item_id)
        reads = item.links.get("reads") if item is not None and is_query(item) else None
        if item is None or reads is None or skips_changes(item):
            continue
        table = state.items.get(reads)
        if table is not None and table.definition.kind == "table":
            found.add(reads)
    return frozenset(found)


def dependents(state: State, item_id: str) -> tuple[str, ...]:
    """Return the queries that use an item directly or through connections, by number of id.

    Follows secrets and connections only: a sink does not restart because the source whose table
    it reads does.
    """
    graph = state.graph
    reached = graph.dependents(
        _identities_of(state, [item_id]),
        edge=lambda used, user: any(map(_is_access, graph.roles(user, used))),
    )
    return tuple(each for each in ids_of(state, reached) if is_query(state.items[each]))


def _is_access(role: str) -> bool:
    return role in ("connection", REGISTRY) or role.startswith((SECRET, OVERRIDE, USING))


def users_of(state: State, item_id: str) -> tuple[str, ...]:
    """Return the items that use an item directly, by number of id."""
    return ids_of(state, (
        user for used in _identities_of(state, [item_id]) for user in state.graph.users_of(used)
    ))


def topological(state: State, item_ids: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Queries in waves: a source before the sinks that read it, independent ones together."""
    return tuple(ids_of(state, wave) for wave in state.graph.waves(_identities_of(state, item_ids)))


def ids_of(state: State, names: Iterable[Identity]) -> tuple[str, ...]:
    """Return the item ids of objects of :attr:`State.graph`, by number."""
    found = (state.item_ids[name] for name in names)
    return tuple(sorted(found, key=lambda each: int(each[1:])))


def _identities_of(state: State, item_ids: Iterable[str]) -> list[Identity]:
    return [state.items[each].definition.identity for each in item_ids if each in state.items]


def fingerprint(state: State, item_id: str) -> str:
    """Return a hash of everything that a query is started from, secrets by id and revision.

    Two states in which it is equal need no restart: names, comments and options that come out the
    same do not enter.
    """
    import xxhash

    item = state.items[item_id]
    external = external_of(item)
    parts: list[object] = [
        item.shard,
        [(column.name, column.type, column.nullable) for column in item.definition.columns],
        external.connector, sorted(external.settings.items()), external.format,
        sorted(external.include.items()), external.key, external.order_by,
        sorted((name, _secret_reference(value)) for name, value in external.options.items()),
    ]
    if external.overrides:
        parts.append(sorted(
            (name, _override(state, item, name, value))
            for name, value in external.overrides.items()
        ))
    # the shard that a sink reads is followed by its positions, not by a new definition
    reads = item.links.get("reads")
    parts += [reads, item.links.get("dead_letters")]
    if external.tables:
        parts.append([(each, item.links[OUTPUT + each.name]) for each in external.tables])
    stream = state.streams.get(reads or "")
    if stream is not None and may_have_row_keys(item.definition):
        parts.append(sorted(stream.known_topics.items()))  # the keys of its rows have them
    if external.key_format is not None:
        parts.append(external.key_format)
    for role in ("connection", REGISTRY):
        connection = item.links.get(role)
        if connection is not None:
            parts += _connection_parts(state, connection)
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(parts))


class WantedQueries:
    """The queries that a state wants to run, and what each is started from once that is asked."""

    def __init__(self, state: State, item_ids: Iterable[str]) -> None:
        self.state = state
        self._fingerprints: dict[str, str | None] = dict.fromkeys(item_ids)

    def __iter__(self) -> Iterator[str]:
        """The items' ids, in their order."""
        return iter(self._fingerprints)

    def fingerprint(self, item_id: str) -> str:
        """Return the fingerprint of a query; empty for one that is not wanted."""
        found = self._fingerprints.get(item_id, "")
        if found is None:
            found = self._fingerprints[item_id] = fingerprint(self.state, item_id)
        return found


def _connection_parts(state: State, connection_id: str) -> list[object]:
    """What a connection is made of, its tunnel's parts in the place of the tunnel's name."""
    whole = effective(state, connection_id)
    parts: list[object] = [whole.connector, *_option_parts(state, whole)]
    for name, used in sorted(whole.uses.items()):
        parts.append((name, used, _option_parts(state, effective(state, used))))
    return parts


def _option_parts(state: State, whole: Effective) -> list[object]:
    """The options of a connection itself, secrets by id and revision."""
    parts: list[object] = []
    for name, value in sorted(whole.options.items(), key=lambda each: each[0]):
        if name in whole.uses:
            continue
        secret = whole.secrets.get(name)
        revision = external_of(state.items[secret]).revision if secret is not None else 0
        parts.append((name, secret or _secret_reference(value), revision))
    return parts


def _override(state: State, item: ItemRecord, name: str, value: OptionValue) -> str:
    """An override, a secret's by id and revision."""
    secret = item.links.get(OVERRIDE + name)
    if secret is None:
        return _secret_reference(value)
    return f"secret {secret} {external_of(state.items[secret]).revision}"


def _secret_reference(value: OptionValue) -> str:
    return value if isinstance(value, str) else f"secret {value.secret}"


def redefine(item: ItemRecord, external: External, **changes: object) -> ObjectDefinition:
    """Return an item's definition with another external part."""
    return msgspec.structs.replace(item.definition, external=external, **changes)


def refuse_new_loops(before: State, after: State) -> None:
    """RefusedStatement where a sink of ``after`` reads what it writes and did not ``before``.

    Whatever closes the circle: a sink, another topic or connection of one, or of a source, or
    other brokers of a connection.
    """
    found = _loops(after)
    if not found:
        return
    known = _loops(before)
    for sink in sorted(found, key=lambda sink: (sink in before.items, sink)):  # the new one first
        if sink not in known:
            way = found[sink]
            _, source, *_, own, _ = way
            path = " -> ".join(f"{each.kind} {_name_of(each)}" for each in way)
            raise RefusedStatement(
                f"sink {display(after, sink)} would read what it writes: its topic {own.name} comes"
                f" back through source {source.item_name}" + (f" ({path})" if len(way) > 4 else ""),
                remedy="write to another topic",
            )


def refuse_shared_ports(state: State) -> None:
    """RefusedStatement where brokers behind tunnels would have one port at the local end.

    Clients are told localhost and the port by each of them, and would reach the other.
    """
    ways: dict[int, tuple[tuple[str, str], str]] = {}
    for item_id, item in state.items.items():
        if item.definition.kind != "connection":
            continue
        whole = effective(state, item_id)
        if not whole.uses:
            continue
        (tunnel,) = whole.uses.values()
        connector = find_if_installed(whole.connector)
        for host, port in connector.find_listeners(whole.options) if connector is not None else ():
            known, other = ways.setdefault(port, ((tunnel, host), item_id))
            if known != (tunnel, host):
                raise RefusedStatement(
                    f"connections {display(state, other)} and {display(state, item_id)} go through "
                    f"tunnels to different brokers on port {port}, and both brokers are reached at "
                    f"localhost:{port}",
                    remedy="give one of the brokers a listener on another port for the tunnel",
                )


def _name_of(key: ItemKey) -> str:
    return key.name if key.kind == "topic" else str(key.item_name)


def _loops(state: State) -> Mapping[str, tuple[ItemKey, ...]]:
    """By sink the way on which its rows come back to it: the sink, the source that it reads, the
    topic which that reads, whoever writes this, and so on to the sink."""
    from catalog_migrate.model.graph import DependencyGraph

    keys: dict[Identity, ItemKey] = {}
    uses: dict[Identity, list[Identity]] = {}
    sinks: dict[str, Identity] = {}
    for found in queries(state):
        topics = _topics(state, found.item.links["connection"], found.external)
        if not topics:
            continue
        name = found.mapping.identity
        keys[name] = found.mapping.key
        keys.update(topics)
        if found.mapping.kind == "sink":
            sinks[found.item_id] = name
            read = state.items[found.item.links["reads"]].definition
            keys[read.identity] = read.key
            uses[name] = [read.identity]
            for topic in topics:  # what is in it is what its sinks read
                uses.setdefault(topic, []).append(name)
        else:
            uses[name] = list(topics)
    if not sinks:
        return {}
    graph = DependencyGraph(uses, keys)
    loops = {item_id: graph.loop(name) for item_id, name in sinks.items()}
    return {item_id: tuple(map(graph.key, loop)) for item_id, loop in loops.items() if loop}


def _topics(state: State, connection: str, external: External) -> dict[Identity, ItemKey]:
    """Each topic that a source reads or a sink writes: its server and its name, in their case."""
    connector = find_if_installed(external.connector)
    if connector is None:
        return {}
    options = effective(state, connection).options
    return {
        ("topic", server, topic): ItemKey(server, "topic", topic)
        for server, topic in connector.channels(options, external)
    }


def is_defined_as(state: State, item_id: str, definition: ObjectDefinition | None) -> bool:
    """Return whether an item is so defined, beside name and comment, which restart nothing."""
    item = state.items.get(item_id)
    return item is not None and definition is not None and (
        item.definition.external == definition.external
        and item.definition.columns == definition.columns
    )
