"""What a single-node Kafka broker of the tests is told: its properties, its logging, its ports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.services.token_server import AUDIENCE, ISSUER

REAUTHENTICATION = 5.0
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Ports(msgspec.Struct, frozen=True):
    """Where a broker listens on 127.0.0.1.

    The listener ``tunnelled`` without a login says that it is at localhost on the port ``local``,
    where only a tunnel makes that true; 0 for none.
    """

    controller: int
    plaintext: int
    sasl: int
    ssl: int
    sasl_ssl: int
    tunnelled: int = 0
    local: int = 0


class Keystore(msgspec.Struct, frozen=True):
    """A PKCS12 file with its password."""

    path: Path
    password: str


class BrokerKeys(msgspec.Struct, frozen=True):
    """What the listeners with TLS need: the broker's own pair, and whose certificates it trusts."""

    own: Keystore
    trusted: Keystore


def server_properties(
    ports: Ports,
    *,
    data: Path,
    users: Mapping[str, str],
    acls: bool = False,
    keys: BrokerKeys | None = None,
    jwks: Path | None = None,
    reauthentication: float = REAUTHENTICATION,
) -> str:
    """The text of ``server.properties``.

    ``data`` is the directory of the logs, ``users`` may log in by SASL PLAIN with the passwords
    that they had at the start (SCRAM's live in the cluster's metadata), ``acls`` turns on the
    authorizer, ``keys`` the listeners with TLS, ``jwks`` SASL OAUTHBEARER: a file of keys whose
    tokens are accepted. ``reauthentication`` is the time in seconds after which a live connection
    must authenticate again.
    """
    listeners = {
        "SASL_PLAINTEXT": ports.sasl,
        "PLAINTEXT": ports.plaintext,
    }
    if keys is not None:
        listeners |= {"SSL": ports.ssl, "SASL_SSL": ports.sasl_ssl}
    advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
    protocols = ",".join(f"{name}:{name}" for name in listeners)
    listening = advertised
    if ports.tunnelled:
        listening += f",TUNNELLED://127.0.0.1:{ports.tunnelled}"
        advertised += f",TUNNELLED://localhost:{ports.local}"
        protocols += ",TUNNELLED:PLAINTEXT"
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.bootstrap.servers=127.0.0.1:{ports.controller}",
        f"listeners={listening},CONTROLLER://127.0.0.1:{ports.controller}",
        f"advertised.listeners={advertised}",
        f"listener.security.protocol.map={protocols},CONTROLLER:PLAINTEXT",
        "controller.listener.names=CONTROLLER",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN" + ",OAUTHBEARER" * bool(jwks),
        f"connections.max.reauth.ms={round(reauthentication * 1000)}",
        f"log.dirs={data}",
        "auto.create.topics.enable=false",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "transaction.state.log.num.partitions=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        "group.initial.rebalance.delay.ms=0",
        "log.cleaner.enable=false",
        "file.delete.delay.ms=1000",
        "num.network.threads=2",
        "num.io.threads=2",
        "background.threads=2",
        "broker.heartbeat.interval.ms=500",
        "broker.session.timeout.ms=6000",
    ]
    accepted = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    for listener in listeners:
        if listener.startswith("SASL_"):
            prefix = f"listener.name.{listener.lower()}"
            lines += [
                f"{prefix}.scram-sha-512.sasl.jaas.config={_SCRAM} required;",
                f"{prefix}.scram-sha-256.sasl.jaas.config={_SCRAM} required;",
                f"{prefix}.plain.sasl.jaas.config={_PLAIN} required {accepted};",
            ]
            if jwks is not None:
                prefix += ".oauthbearer.sasl"
                lines += [
                    f"{prefix}.jaas.config={_OAUTH}.OAuthBearerLoginModule required;",
                    f"{prefix}.server.callback.handler.class={_OAUTH}."
                    "OAuthBearerValidatorCallbackHandler",
                ]
    if jwks is not None:
        # without this class Kafka 4.1.1 reads the claims and checks no signature
        lines += [
            f"sasl.oauthbearer.jwt.validator.class={_OAUTH}.BrokerJwtValidator",
            f"sasl.oauthbearer.jwks.endpoint.url={jwks.as_uri()}",
            f"sasl.oauthbearer.expected.audience={AUDIENCE}",
            f"sasl.oauthbearer.expected.issuer={ISSUER}",
        ]
    if acls:
        lines += [
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # the listeners without a login are those of the cluster itself and of its owner
            "super.users=User:ANONYMOUS",
            "allow.everyone.if.no.acl.found=true",
        ]
    if keys is not None:
        lines += [
            "ssl.keystore.type=PKCS12",
            f"ssl.keystore.location={keys.own.path}",
            f"ssl.keystore.password={keys.own.password}",
            f"ssl.key.password={keys.own.password}",
            "ssl.truststore.type=PKCS12",
            f"ssl.truststore.location={keys.trusted.path}",
            f"ssl.truststore.password={keys.trusted.password}",
            "listener.name.ssl.ssl.client.auth=requested",
            "ssl.principal.mapping.rules=RULE:^CN=([^,]*)$/$1/",
        ]
    return "\n".join(lines) + "\n"


LOGGING = """\
<Configuration status="WARN">
  <Appenders>
    <Console name="out">
      <PatternLayout pattern="%d{HH:mm:ss} %p %c{1}: %m%n%rEx{6}"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
