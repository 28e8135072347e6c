"""What of a connection, secret, source or sink differs: its options, which show no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from catalog_migrate.model.objects import External, ObjectDefinition, OptionValue
from catalog_migrate.report.report import Difference
from catalog_migrate.streams.catalog.query_spec import hide_secrets


def list_options(
    old: ObjectDefinition | None, new: ObjectDefinition | None
) -> Iterator[Difference]:
    """List the options that differ; a secret is shown by its name, never by its value."""
    before, after = _option_texts(old), _option_texts(new)
    for name in (*after, *(each for each in before if each not in after)):
        if before.get(name) != after.get(name):
            yield Difference("option", name, before.get(name), after.get(name))
    was, now = (None if each is None else each.comment for each in (old, new))
    if was != now:
        yield Difference("comment", "", was, now)


def _option_texts(definition: ObjectDefinition | None) -> Mapping[str, str]:
    if definition is None:
        return {}
    external = hide_secrets(definition).external or External()
    named: dict[str, OptionValue | None] = {
        "CONNECTION" if definition.kind != "connection" else "USING CONNECTION":
            external.connection,
        "REFERENCE": external.reference,
        "REVISION": str(external.revision) if definition.kind == "secret" else None,
        "CLUSTER": external.cluster,
    }
    given = {
        **{name: value for name, value in named.items() if value is not None},
        **external.options, **external.settings, **external.overrides,
    }
    return {
        name: value if isinstance(value, str) else f"SECRET {value.secret}"
        for name, value in given.items()
    }
