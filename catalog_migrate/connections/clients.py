"""What each client library is given: Spark's Kafka source and sink, librdkafka, psycopg.

Everything here is made from *effective* options with their secrets resolved, at the moment a
client is about to be started, and is never stored. Defaults that bound how long a failure takes
(seconds; with those of Spark a closed port stays unreported for minutes) give way to what the
connection says.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog_migrate.connections import tunnels
from catalog_migrate.connections.kinds import CONNECTORS
from catalog_migrate.connections.secrets import Secret, reveal
from catalog_migrate.connections.values import (
    addresses_of,
    milliseconds,
    pairs_of,
    start_of,
    table_of,
    topics_of,
)
from catalog_migrate.errors import InvalidOptions, PrerequisiteMissing
from catalog_migrate.model.names import quote_postgres
from catalog_migrate.model.objects import OptionValue

if TYPE_CHECKING:
    import psycopg

Resolved = Mapping[str, str | Secret]
"""Effective options of a connection by canonical name, with the values of its secrets."""

_PREFIX = "kafka."
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_MSK = "software.amazon.msk.auth.iam"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
_REQUEST_TIMEOUT = 3000
_API_TIMEOUT = 5000
_JAVA_TO_LIBRDKAFKA = {
    "client.id": "client.id",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
}
"""Options of the Java clients that librdkafka has too; all others it would refuse."""


def option_of(resolved: Resolved, connector: str, name: str) -> str | None:
    """The text of an option, its declared default when it is not set."""
    value = resolved.get(name)
    if value is not None:
        return reveal(value)
    option = CONNECTORS[connector].connection.find(name)
    return None if option is None else option.default


# -- Kafka -----------------------------------------------------------------------------------------


def spark_kafka_options(resolved: Resolved) -> dict[str, str]:
    """What Spark's Kafka source and sink share: where, how, who, and how long to try."""
    options = {
        f"{_PREFIX}bootstrap.servers": _brokers(resolved),
        f"{_PREFIX}security.protocol": _kafka(resolved, "SECURITY PROTOCOL") or "",
    }
    mechanism = _kafka(resolved, "SASL MECHANISMS")
    if mechanism is not None:
        options[f"{_PREFIX}sasl.mechanism"] = mechanism
        options |= {_PREFIX + name: value for name, value in _java_login(resolved, mechanism)}
    authority = _kafka(resolved, "SSL CERTIFICATE AUTHORITY")
    if authority is not None:
        options[f"{_PREFIX}ssl.truststore.type"] = "PEM"
        options[f"{_PREFIX}ssl.truststore.certificates"] = authority
    certificate, key = _kafka(resolved, "SSL CERTIFICATE"), _kafka(resolved, "SSL KEY")
    if certificate is not None and key is not None:
        _refuse_pkcs1(key)
        options[f"{_PREFIX}ssl.keystore.type"] = "PEM"
        options[f"{_PREFIX}ssl.keystore.certificate.chain"] = certificate
        options[f"{_PREFIX}ssl.keystore.key"] = key
        password = _kafka(resolved, "SSL KEY PASSWORD")
        if password is not None:
            options[f"{_PREFIX}ssl.key.password"] = password
    own = {name: reveal(value) for name, value in resolved.items() if name.startswith(_PREFIX)}
    request = own.get(f"{_PREFIX}request.timeout.ms", str(_REQUEST_TIMEOUT))
    # Kafka refuses a default.api.timeout.ms below request.timeout.ms.
    api = str(max(_API_TIMEOUT, int(request))) if request.isdigit() else str(_API_TIMEOUT)
    return {
        f"{_PREFIX}request.timeout.ms": request,
        f"{_PREFIX}default.api.timeout.ms": api,
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "200",
        **options,
        **own,
    }


def spark_kafka_source_options(
    resolved: Resolved, options: Mapping[str, OptionValue], settings: Mapping[str, str]
) -> dict[str, str]:
    """Everything for ``readStream.format("kafka")``, from the source's canonical options too."""
    result = spark_kafka_options(resolved)
    result["subscribe"] = ",".join(topics_of(str(options["TOPIC"])))
    result["failOnDataLoss"] = "true"
    start = str(options.get("START", "earliest"))
    moment = start_of(start)
    if moment is None:
        result["startingOffsets"] = start
    else:
        result["startingTimestamp"] = str(round(moment.timestamp() * 1000))
        # A partition without a record that young begins at its end, as a person would expect.
        result["startingOffsetsByTimestampStrategy"] = "latest"
    if "MAX OFFSETS PER TRIGGER" in settings:
        result["maxOffsetsPerTrigger"] = settings["MAX OFFSETS PER TRIGGER"]
    return result


def spark_kafka_sink_options(
    resolved: Resolved, options: Mapping[str, OptionValue]
) -> dict[str, str]:
    """Everything for ``write.format("kafka")``: rows go to one topic, whatever they say."""
    producer = {f"{_PREFIX}max.block.ms": "10000", f"{_PREFIX}delivery.timeout.ms": "30000"}
    shared = spark_kafka_options(resolved)
    request = shared[f"{_PREFIX}request.timeout.ms"]
    linger = shared.get(f"{_PREFIX}linger.ms", "0")
    if request.isdigit() and linger.isdigit():
        # Kafka refuses a delivery.timeout.ms below their sum.
        least = max(30_000, int(request) + int(linger))
        producer[f"{_PREFIX}delivery.timeout.ms"] = str(least)
    return {**producer, **shared, "topic": str(options["TOPIC"])}


def librdkafka_config(resolved: Resolved, *, subject: str = "connection") -> dict[str, Any]:
    """The configuration of a confluent-kafka client for the same connection.

    Raises ConnectionFailed, with ``subject``, for a tunnel that does not lead to the brokers.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": _brokers(resolved, subject, starts=False),
        "security.protocol": _kafka(resolved, "SECURITY PROTOCOL"),
        "socket.timeout.ms": _REQUEST_TIMEOUT * 2,
        "socket.connection.setup.timeout.ms": _REQUEST_TIMEOUT,
        # The admin client tries again every 50 ms and logs each time; once in 500 is enough.
        "reconnect.backoff.ms": 500,
        "client.id": "catalog_migrate",
    }
    for option, name in (
        ("SASL MECHANISMS", "sasl.mechanism"),
        ("SASL USERNAME", "sasl.username"),
        ("SASL PASSWORD", "sasl.password"),
        ("SSL CERTIFICATE AUTHORITY", "ssl.ca.pem"),
        ("SSL CERTIFICATE", "ssl.certificate.pem"),
        ("SSL KEY", "ssl.key.pem"),
        ("SSL KEY PASSWORD", "ssl.key.password"),
    ):
        value = _kafka(resolved, option)
        if value is not None:
            config[name] = value
    for java, name in _JAVA_TO_LIBRDKAFKA.items():
        value = _kafka(resolved, _PREFIX + java)
        if value is not None:
            config[name] = value
    config |= _librdkafka_login(resolved, config.get("sasl.mechanism"))
    if config.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"
    return config


def _brokers(resolved: Resolved, subject: str = "connection", *, starts: bool = True) -> str:
    """The addresses to begin with; through a tunnel each has its own port at the local end.

    The brokers must say that they are there (``advertised.listeners``), for clients follow what
    they say: :meth:`KafkaProbe.cluster` refuses others. Who only asks (not ``starts``) begins at a
    port of its own, and leaves those of queries as they are: another cluster may be behind it.
    """
    text = _kafka(resolved, "BROKER") or ""
    if tunnels.OPTION not in resolved:
        return text
    found = []
    for host, port in addresses_of(text):
        reach = partial(
            tunnels.endpoint, resolved, host, port, subject=subject, option="BROKER"
        )
        begin = reach() if not starts else ("", 0)
        end = reach(same_port=True, replace=starts)
        found.append(end if starts else begin)
    return ",".join(f"{host}:{port}" for host, port in found)


def _kafka(resolved: Resolved, name: str) -> str | None:
    return option_of(resolved, "KAFKA", name)


def _java_login(resolved: Resolved, mechanism: str) -> Iterator[tuple[str, str]]:
    """How the Java clients log in: the entry of JAAS, and the classes that it needs."""
    if mechanism == "OAUTHBEARER":
        yield "sasl.jaas.config", _entry(f"{_OAUTH}.OAuthBearerLoginModule", {
            # Nobody reads it. Spark's log at DEBUG hides what stands from this word to the end.
            "password": "",
            "clientId": _kafka(resolved, "OAUTH CLIENT ID"),
            "clientSecret": _kafka(resolved, "OAUTH CLIENT SECRET"),
            "scope": _kafka(resolved, "OAUTH SCOPE"),
            **{f"extension_{name}": value for name, value in _extensions(resolved).items()},
            **_trusting(_kafka(resolved, "OAUTH CERTIFICATE AUTHORITY")),
        })
        yield "sasl.login.callback.handler.class", f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
        yield "sasl.oauthbearer.token.endpoint.url", _kafka(resolved, "OAUTH TOKEN ENDPOINT") or ""
    elif mechanism == "AWS_MSK_IAM":
        role = _kafka(resolved, "AWS ROLE")
        region = _kafka(resolved, "AWS REGION") if role is not None else None
        yield "sasl.jaas.config", _entry(
            f"{_MSK}.IAMLoginModule", {"awsRoleArn": role, "awsStsRegion": region}
        )
        yield "sasl.client.callback.handler.class", f"{_MSK}.IAMClientCallbackHandler"
    elif mechanism == "GSSAPI":
        yield "sasl.jaas.config", _entry(_KERBEROS, {
            "useKeyTab": "true", "storeKey": "true",
            "keyTab": _kafka(resolved, "KERBEROS KEYTAB"),
            "principal": _kafka(resolved, "KERBEROS PRINCIPAL"),
        })
        yield "sasl.kerberos.service.name", "kafka"
    else:
        yield "sasl.jaas.config", _jaas(
            mechanism, _kafka(resolved, "SASL USERNAME") or "",
            _kafka(resolved, "SASL PASSWORD") or "",
        )


def _librdkafka_login(resolved: Resolved, mechanism: str | None) -> dict[str, Any]:
    """How librdkafka logs in, where it is not by a password."""
    if mechanism == "OAUTHBEARER":
        authority = _kafka(resolved, "OAUTH CERTIFICATE AUTHORITY")
        # librdkafka's wheel by itself looks only where one distribution keeps its certificates
        found: dict[str, Any] = {"sasl.oauthbearer.method": "oidc", "https.ca.location": "probe"}
        if authority is not None:
            del found["https.ca.location"]
            found["https.ca.pem"] = authority
        for option, name in (
            ("OAUTH TOKEN ENDPOINT", "token.endpoint.url"), ("OAUTH CLIENT ID", "client.id"),
            ("OAUTH CLIENT SECRET", "client.secret"), ("OAUTH SCOPE", "scope"),
            ("OAUTH EXTENSIONS", "extensions"),
        ):
            value = _kafka(resolved, option)
            if value is not None:
                found[f"sasl.oauthbearer.{name}"] = value
        return found
    if mechanism == "AWS_MSK_IAM":
        return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": _signer(resolved)}
    if mechanism == "GSSAPI":
        return {
            "sasl.kerberos.principal": _kafka(resolved, "KERBEROS PRINCIPAL"),
            "sasl.kerberos.keytab": _kafka(resolved, "KERBEROS KEYTAB"),
        }
    return {}


def _signer(resolved: Resolved) -> Callable[[str], tuple[str, float]]:
    """What gives librdkafka a token of AWS: (token, seconds since 1970 at which it ends)."""
    try:
        provider = importlib.import_module("aws_msk_iam_sasl_signer").MSKAuthTokenProvider
    except ImportError:
        raise PrerequisiteMissing(
            "SASL MECHANISMS AWS_MSK_IAM needs a package that is not installed",
            remedy="pip install aws-msk-iam-sasl-signer-python",
        ) from None
    region, role = _kafka(resolved, "AWS REGION"), _kafka(resolved, "AWS ROLE")

    def token(_: str) -> tuple[str, float]:
        if role is None:
            made, ends = provider.generate_auth_token(region)
        else:
            made, ends = provider.generate_auth_token_from_role_arn(region, role)
        return made, ends / 1000

    return token


def _extensions(resolved: Resolved) -> dict[str, str]:
    text = _kafka(resolved, "OAUTH EXTENSIONS")
    return {} if text is None else pairs_of(text)


def _trusting(authority: str | None) -> dict[str, str | None]:
    """What an entry of JAAS says to trust an endpoint's certificates; nothing: the platform's."""
    if authority is None:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}


def _jaas(mechanism: str, user: str, password: str) -> str:
    return _entry(_LOGIN_MODULES[mechanism], {"username": user, "password": password})


def _entry(module: str, options: Mapping[str, str | None]) -> str:
    """An entry of JAAS with those options that there are."""
    said = "".join(
        f' {name}="{_quoted(value)}"' for name, value in options.items() if value is not None
    )
    return f"{module} required{said};"


def _quoted(text: str) -> str:
    """For between double quotes in a JAAS text, which java.io.StreamTokenizer takes apart."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return "".join(escapes.get(character, character) for character in text)


def _refuse_pkcs1(key: str) -> None:
    """The Java clients read PKCS#8 only; their own message about it is no help to anyone."""
    head = key.lstrip().split("\n", 1)[0]
    if "BEGIN PRIVATE KEY" not in head and "BEGIN ENCRYPTED PRIVATE KEY" not in head:
        raise InvalidOptions(
            "option SSL KEY holds no key in PKCS#8 form",
            remedy="convert it: openssl pkcs8 -topk8 -in key.pem -out key-pkcs8.pem",
        )


# -- PostgreSQL ------------------------------------------------------------------------------------


def postgres_parameters(resolved: Resolved, *, subject: str = "connection") -> dict[str, Any]:
    """psycopg's keyword arguments; ConnectionFailed when a tunnel does not lead to the server.

    Through a tunnel, the name that TLS checks stays that of the server itself.

    libpq takes certificates and keys as files only: they become memory without a name, open as
    long as this process lives, where the platform has that, else private temporary files that go
    with it.
    """
    host, port = _postgres(resolved, "HOST") or "", int(_postgres(resolved, "PORT") or 5432)
    address, local_port = tunnels.endpoint(resolved, host, port, subject=subject)
    parameters: dict[str, Any] = {
        "host": host,
        "port": local_port,
        "dbname": _postgres(resolved, "DATABASE"),
        "user": _postgres(resolved, "USER"),
        # The empty text, for libpq would else look into its environment.
        "password": _postgres(resolved, "PASSWORD") or "",
        "sslmode": _postgres(resolved, "SSL MODE"),
        "connect_timeout": 5,
        "application_name": "catalog_migrate",
        # Without these a server that vanished would be waited for during minutes or hours.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        # The connection decides who logs in, not what this account has in its home directory.
        "passfile": os.path.join(os.devnull, "none"),
        "gssencmode": "disable",
    }
    if address != host:
        parameters["hostaddr"] = address
    if parameters["sslmode"] == "verify-full":
        parameters["sslrootcert"] = "system"
    for option, name in (
        ("SSL CERTIFICATE AUTHORITY", "sslrootcert"),
        ("SSL CERTIFICATE", "sslcert"),
        ("SSL KEY", "sslkey"),
    ):
        text = _postgres(resolved, option)
        if text is not None:
            parameters[name] = file_with(text)
    return parameters


def connect_postgres(
    resolved: Resolved, *, subject: str = "connection", **more: Any
) -> psycopg.Connection[Any]:
    """A connection to the database; ``more`` goes to ``psycopg.connect`` and wins.

    Raises psycopg.OperationalError, whose text is not scrubbed, and ConnectionFailed, with
    ``subject``, for a tunnel that does not lead there.
    """
    import psycopg

    return psycopg.connect(**{**postgres_parameters(resolved, subject=subject), **more})


def quoted_table(text: str) -> str:
    """A TABLE option for SQL: each part in double quotes, folded as PostgreSQL would."""
    return ".".join(quote_postgres(part) for part in table_of(text) if part is not None)


def _postgres(resolved: Resolved, name: str) -> str | None:
    return option_of(resolved, "POSTGRES", name)


@functools.cache
def file_with(text: str) -> str:
    """A path under which this process, and no other user, reads ``text``; one for each text."""
    if not hasattr(os, "memfd_create"):
        return _private_file(text)
    # Its name is only for /proc and says nothing.
    descriptor = os.memfd_create("catalog_migrate")
    os.fchmod(descriptor, 0o600)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(text.encode())
    return f"/proc/self/fd/{descriptor}"


def _private_file(text: str) -> str:
    """The same with a temporary file, removed when the process ends in an orderly way."""
    descriptor, path = tempfile.mkstemp(prefix="catalog_migrate-")  # mode 0600
    atexit.register(Path(path).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
    return path


# -- files -----------------------------------------------------------------------------------------


def files_directory(resolved: Resolved, sub: str | None = None) -> Path:
    """The directory of a FILES connection, or one below it.

    Raises InvalidOptions when ``sub`` leads out of the connection's directory, by a symbolic link
    too.
    """
    root = Path(option_of(resolved, "FILES", "PATH") or "")
    if sub is None:
        return root
    path = root / sub
    if ".." in Path(sub).parts or not path.resolve().is_relative_to(root.resolve()):
        raise InvalidOptions(
            f"option PATH: {sub} leads out of the connection's directory",
            remedy="name a directory below it",
        )
    return path


def spark_files_options(
    resolved: Resolved, options: Mapping[str, OptionValue], settings: Mapping[str, str]
) -> dict[str, str]:
    """Everything for ``readStream.format(…)`` of a FILES source but format, schema and path."""
    prefix = "files."
    result = {
        name[len(prefix) :]: reveal(value)
        for name, value in resolved.items()
        if name.startswith(prefix)
    }
    if "PATTERN" in options:
        result["pathGlobFilter"] = str(options["PATTERN"])
    if "MAX FILES PER TRIGGER" in settings:
        result["maxFilesPerTrigger"] = settings["MAX FILES PER TRIGGER"]
    return result


def trigger_seconds(settings: Mapping[str, str]) -> float:
    """The interval of a source's or sink's TRIGGER setting."""
    return milliseconds(settings.get("TRIGGER", "1 second")) / 1000
