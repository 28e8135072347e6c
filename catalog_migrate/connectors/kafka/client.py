"""What Kafka's clients are given: Spark's source and sink, and librdkafka.

Defaults that bound how long a failure takes (seconds; with those of Spark a closed port stays
unreported for minutes) give way to what the connection says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from catalog_migrate.connectors.options import option_of
from catalog_migrate.connectors.resolved import Resolved
from catalog_migrate.connectors.secrets import reveal
from catalog_migrate.connectors.ssh import tunnels
from catalog_migrate.connectors.values import addresses_of, pairs_of, start_of, topics_of
from catalog_migrate.errors import InvalidOptions, PrerequisiteMissing
from catalog_migrate.model.objects import OptionValue

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


