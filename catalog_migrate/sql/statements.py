"""Every statement of the language as a frozen value.

Names of items are text in canonical form, ``schema.name`` or ``name``, with backticks where a part
needs them (:func:`catalog_migrate.model.names.split_name` takes them apart). Names of columns are
bare. Options and settings carry canonical names, see :mod:`catalog_migrate.sql.vocabulary`;
whether they exist, fit together and may be altered is decided in planning.
"""

from __future__ import annotations

import msgspec

from catalog_migrate.model.objects import Column, External, OptionValue
from catalog_migrate.sql.vocabulary import Kind, Listing, QueryKind


class CreateSecret(msgspec.Struct, frozen=True):
    """``CREATE SECRET name AS 'reference' [COMMENT …]``: only the reference is ever stored."""

    name: str
    reference: str
    if_not_exists: bool = False
    comment: str | None = None


class AlterSecret(msgspec.Struct, frozen=True):
    """``ALTER SECRET name [AS 'reference']``: raises the revision, also without a reference."""

    name: str
    reference: str | None = None
    if_exists: bool = False


class Drop(msgspec.Struct, frozen=True):
    """``DROP kind name [RESTRICT | CASCADE]``; RESTRICT is the default."""

    kind: Kind
    name: str
    if_exists: bool = False
    cascade: bool = False


class CreateConnection(msgspec.Struct, frozen=True):
    """``CREATE CONNECTION name TO connector (…)``; ``validate`` is None when WITH was not given.

    ``external`` holds ``connector``, ``options`` and, of USING CONNECTION, ``connection``.
    """

    name: str
    external: External
    if_not_exists: bool = False
    validate: bool | None = None
    comment: str | None = None


class SetOptions(msgspec.Struct, frozen=True):
    """``SET (…)``; of a connection, the key ``USING CONNECTION`` names another base."""

    options: dict[str, OptionValue]


class DropOptions(msgspec.Struct, frozen=True):
    """``DROP (…)``: the options are taken away."""

    names: tuple[str, ...]


class ResetOptions(msgspec.Struct, frozen=True):
    """``RESET (…)``: the options get their declared defaults."""

    names: tuple[str, ...]


Action = SetOptions | DropOptions | ResetOptions


class AlterConnection(msgspec.Struct, frozen=True):
    """``ALTER CONNECTION name [AS connector] [ROTATE KEYS,] action, …``.

    ``connector`` is what AS says and is only compared with the catalog; ``validate`` is None when
    WITH was not given. ``rotate`` is done before the actions, of which there may be none then.
    """

    name: str
    actions: tuple[Action, ...]
    if_exists: bool = False
    connector: str | None = None
    validate: bool | None = None
    rotate: bool = False


class AlterItem(msgspec.Struct, frozen=True):
    """``ALTER SOURCE | SINK name action, …`` for options that may change in place."""

    kind: QueryKind
    name: str
    actions: tuple[Action, ...]
    if_exists: bool = False


class SetConnection(msgspec.Struct, frozen=True):
    """``ALTER SOURCE | SINK name SET CONNECTION connection``."""

    kind: QueryKind
    name: str
    connection: str
    if_exists: bool = False


class Rename(msgspec.Struct, frozen=True):
    """``ALTER kind name RENAME TO to``."""

    kind: Kind
    name: str
    to: str
    if_exists: bool = False


class ShowCreate(msgspec.Struct, frozen=True):
    """``SHOW CREATE kind name``."""

    kind: Kind
    name: str


class ValidateConnection(msgspec.Struct, frozen=True):
    """``VALIDATE CONNECTION name``."""

    name: str


class CreateSource(msgspec.Struct, frozen=True):
    """``CREATE SOURCE name [(columns)] FROM connector CONNECTION c (…) …``.

    ``columns`` are the declared ones with their types as written; ``external`` holds
    ``connector``, ``connection``, ``options``, ``format`` with its ``registry`` and
    ``key_format``, ``include``, ``dead_letters``, ``cluster`` and the ``settings`` of WITH.
    ``paused`` is the reason of PAUSED, None without it.
    """

    name: str
    columns: tuple[Column, ...]
    external: External
    if_not_exists: bool = False
    comment: str | None = None
    paused: str | None = None


class CreateSink(msgspec.Struct, frozen=True):
    """``CREATE SINK name FROM relation INTO connector CONNECTION c (…) …``.

    ``external`` holds ``reads``, ``connector``, ``connection``, ``options``, ``key``,
    ``order_by``, ``format`` with its ``registry``, ``cluster`` and the ``settings`` of WITH.
    ``paused`` is the reason of PAUSED, None without it.
    """

    name: str
    external: External
    if_not_exists: bool = False
    comment: str | None = None
    paused: str | None = None


class CreateCluster(msgspec.Struct, frozen=True):
    """``CREATE CLUSTER name``."""

    name: str
    if_not_exists: bool = False


class Pause(msgspec.Struct, frozen=True):
    """``PAUSE SOURCE | SINK name [REASON 'text']``: adds the operator's hold."""

    kind: QueryKind
    name: str
    reason: str | None = None


class Resume(msgspec.Struct, frozen=True):
    """``RESUME SOURCE | SINK name [REASON 'text']``: removes the operator's hold."""

    kind: QueryKind
    name: str
    reason: str | None = None


class Show(msgspec.Struct, frozen=True):
    """``SHOW SOURCES | SINKS | CONNECTIONS | CLUSTERS | OPERATIONS | SECRETS``."""

    what: Listing


class Comment(msgspec.Struct, frozen=True):
    """``COMMENT ON kind name IS 'text' | NULL``."""

    kind: Kind
    name: str
    text: str | None


class ResetSplits(msgspec.Struct, frozen=True):
    """``RESET SPLITS [('topic:0', …)]``: forget what was discovered; none named means all."""

    splits: tuple[str, ...] = ()


class InjectOffsets(msgspec.Struct, frozen=True):
    """``INJECT OFFSETS (…)``: the next record to read, for each split or for all of them.

    ``targets`` maps a split (``topic:0``) to its target as written, None for NULL (START, resolved
    now). ``everywhere`` is the one target of ``TO``. Exactly one of the two is given.
    """

    targets: dict[str, str | None] = {}
    everywhere: str | None = None


class InjectVersion(msgspec.Struct, frozen=True):
    """``INJECT VERSION n``: the version of the table that a sink reads next."""

    version: int


UnsafeAction = SetOptions | DropOptions | ResetOptions | ResetSplits | InjectOffsets | InjectVersion


class Unsafe(msgspec.Struct, frozen=True):
    """``ALTER SOURCE | SINK name UNSAFE action, … [WITH (…)] REASON 'text'``: one operation.

    ``said`` is whether the word UNSAFE was; without it, or a reason, nothing but a dry run is done.
    """

    kind: QueryKind
    name: str
    actions: tuple[UnsafeAction, ...]
    reason: str
    settings: dict[str, str] = {}
    if_exists: bool = False
    said: bool = True


Explainable = (
    CreateSecret | AlterSecret | Drop | CreateConnection | AlterConnection | AlterItem
    | SetConnection | Rename | ShowCreate | ValidateConnection | CreateSource | CreateSink
    | CreateCluster | Pause | Resume | Show | Comment | Unsafe
)


class Explain(msgspec.Struct, frozen=True):
    """``EXPLAIN statement``: the plan is shown and nothing is done."""

    statement: Explainable


Statement = Explainable | Explain
