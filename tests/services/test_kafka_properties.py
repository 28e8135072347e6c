"""What the broker is told."""

from __future__ import annotations

from pathlib import Path

from tests.services.kafka_properties import (
    BrokerKeys,
    Keystore,
    Ports,
    server_properties,
)

PORTS = Ports(controller=1, plaintext=2, sasl=3, ssl=4, sasl_ssl=5)


def _properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_only_what_is_asked_for_is_turned_on() -> None:
    """Without TLS and ACLs there are two listeners for clients and no authorizer."""
    told = _properties(server_properties(PORTS, data=Path("data"), users={"app": "pw"}))
    assert told["advertised.listeners"] == "SASL_PLAINTEXT://127.0.0.1:3,PLAINTEXT://127.0.0.1:2"
    assert told["listeners"].endswith(",CONTROLLER://127.0.0.1:1")
    assert told["connections.max.reauth.ms"] == "5000"
    assert "authorizer.class.name" not in told
    assert not any(name.startswith("ssl.") for name in told)


def test_tls_and_acls_bring_listeners_and_an_authorizer() -> None:
    """Each listener with a login has its three mechanisms."""
    keys = BrokerKeys(Keystore(Path("own.p12"), "a"), Keystore(Path("trusted.p12"), "b"))
    told = _properties(
        server_properties(PORTS, data=Path("data"), users={"app": "pw"}, acls=True, keys=keys)
    )
    assert told["advertised.listeners"].endswith(",SSL://127.0.0.1:4,SASL_SSL://127.0.0.1:5")
    assert told["super.users"] == "User:ANONYMOUS"
    assert told["ssl.truststore.location"] == "trusted.p12"
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_app="pw";'
    assert told["listener.name.sasl_ssl.plain.sasl.jaas.config"] == plain
