"""From a writing statement to its effect: one table of who plans what (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from catalog_migrate.catalog.state import State
from catalog_migrate.sql import statements as st
from catalog_migrate.streams import alter, declare, naming
from catalog_migrate.streams.effects import Effect

_PLANS: Mapping[type, Callable[[State, Any], Effect]] = {
    st.CreateSecret: declare.create_secret,
    st.CreateConnection: declare.create_connection,
    st.CreateSource: declare.create_source,
    st.CreateSink: declare.create_sink,
    st.CreateCluster: declare.create_cluster,
    st.Rename: naming.rename,
    st.Drop: naming.drop,
    st.Comment: naming.comment,
    st.AlterSecret: alter.alter_secret,
    st.AlterConnection: alter.alter_connection,
    st.AlterItem: alter.alter_query,
    st.SetConnection: alter.set_connection,
    st.Pause: alter.pause,
    st.Resume: alter.resume,
}


def plan_statement(state: State, statement: st.Statement) -> Effect:
    """What a writing statement would do on ``state``; typed errors for what cannot be done."""
    return _PLANS[type(statement)](state, statement)


def writes(statement: st.Statement) -> bool:
    """Whether executing a statement changes the catalog."""
    return type(statement) in _PLANS or isinstance(statement, st.Unsafe)


def is_planned(statement: st.Statement) -> bool:
    """Whether a statement is one that writes and is known here."""
    return type(statement) in _PLANS
