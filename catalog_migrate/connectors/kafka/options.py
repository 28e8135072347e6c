"""What connections, sources and sinks of Kafka take."""
# ruff: noqa: S106 - `secret="must"` declares a rule, it is no password.

from __future__ import annotations

from catalog_migrate.connectors.common_options import (
    DECODING_OPTIONS,
    ISOLATION_LEVEL,
    ON_CHANGE,
    PEM,
    SSH_TUNNEL_OPTION,
    TRIGGER,
    tls_options,
)
from catalog_migrate.connectors.kafka.client_options import KAFKA_CLIENT_OPTIONS
from catalog_migrate.connectors.sections import Reserved, Section
from catalog_migrate.connectors.values import Option, When

_SASL = ("SASL_PLAINTEXT", "SASL_SSL")
_NEEDS_SASL = (When("SECURITY PROTOCOL", _SASL),)
_NO_SASL = (When("SECURITY PROTOCOL", ("PLAINTEXT", "SSL")),)
_NO_TLS = (When("SECURITY PROTOCOL", ("PLAINTEXT", "SASL_PLAINTEXT")),)
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _not_by(*mechanisms: str) -> tuple[When, ...]:
    """No login, or one by another mechanism."""
    others = tuple(each for each in _MECHANISMS if each not in mechanisms)
    return (*_NO_SASL, When("SASL MECHANISMS", others))


def _by(mechanism: str) -> tuple[When, ...]:
    return (When("SASL MECHANISMS", (mechanism,)),)


_STRATEGY = Option(
    "SUBJECT STRATEGY", "choice",
    "The subject of a topic's values in the schema registry: topic is `<topic>-value`, record the "
    "record's name, topic-record `<topic>-<record>`.", "record",
    default="topic", choices=("topic", "record", "topic-record"),
)

_RESERVED = (
    Reserved(("bootstrap.servers",), "BROKER"),
    Reserved(("security.protocol",), "SECURITY PROTOCOL"),
    Reserved(("sasl.mechanism", "sasl.mechanisms"), "SASL MECHANISMS"),
    Reserved(("sasl.username",), "SASL USERNAME"),
    Reserved(
        ("sasl.jaas.config", "sasl.password"), "SASL USERNAME and SASL PASSWORD", secrets=True
    ),
    Reserved(("ssl.truststore.*", "ssl.ca.*"), "SSL CERTIFICATE AUTHORITY"),
    Reserved(
        ("ssl.keystore.*", "ssl.key.*", "ssl.certificate.*"),
        "SSL CERTIFICATE, SSL KEY and SSL KEY PASSWORD", secrets=True,
    ),
    Reserved(
        ("sasl.oauthbearer.*",), "OAUTH TOKEN ENDPOINT, OAUTH CLIENT ID, OAUTH CLIENT SECRET",
        secrets=True,
    ),
    Reserved(
        ("group.id", "auto.offset.reset", "enable.auto.commit",
         "key.deserializer", "value.deserializer", "key.serializer", "value.serializer",
         "interceptor.classes", "transactional.id", "enable.auto.offset.store",
         "partition.assignment.strategy", "group.instance.id", "allow.auto.create.topics"),
        "nothing: the product sets it itself",
    ),
    Reserved(
        ("sasl.*.class", "ssl.engine.factory.class", "config.providers*",
         "security.providers", "*password*", "*secret*", "*token*", "*credential*"),
        "nothing: it loads code or carries a secret, and is not supported", secrets=True,
    ),
)  # fmt: skip

_FIRST_START = "only the first start reads it; positions are kept from then on"

_NO_OAUTH = _not_by("OAUTHBEARER")
_NO_AWS = _not_by("AWS_MSK_IAM")
_NO_KERBEROS = _not_by("GSSAPI")

_OAUTH = (
    Option(
        "OAUTH TOKEN ENDPOINT", "url",
        "Where a client gets its token (RFC 6749, client credentials).",
        "https://login.example.com/oauth2/token",
        required_when=_by("OAUTHBEARER"), exclusive_with=_NO_OAUTH,
    ),
    Option(
        "OAUTH CLIENT ID", "text", "The client.", "catalog-migrate", secret="may",
        required_when=_by("OAUTHBEARER"), exclusive_with=_NO_OAUTH,
    ),
    Option(
        "OAUTH CLIENT SECRET", "text", "The client's secret.", "kafka_client", secret="must",
        required_when=_by("OAUTHBEARER"), exclusive_with=_NO_OAUTH,
    ),
    Option(
        "OAUTH SCOPE", "text", "What the token is asked for, several separated by blanks.",
        "kafka", exclusive_with=_NO_OAUTH,
    ),
    Option(
        "OAUTH EXTENSIONS", "pairs", "What goes to the broker beside the token (KIP-342).",
        "logicalCluster=lkc-1,identityPoolId=pool-1", exclusive_with=_NO_OAUTH,
    ),
    Option(
        "OAUTH CERTIFICATE AUTHORITY", "pem",
        "Certificates (PEM) that the token endpoint's is checked against; without it those that "
        "the platform trusts.", PEM, secret="may", exclusive_with=_NO_OAUTH,
    ),
)  # fmt: skip

_AWS_AND_KERBEROS = (
    Option(
        "AWS REGION", "text",
        "The cluster's region. Credentials are those that AWS's own clients find where the "
        "runtime runs.", "eu-central-1",
        required_when=_by("AWS_MSK_IAM"), exclusive_with=_NO_AWS,
    ),
    Option(
        "AWS ROLE", "text", "The role (ARN) to take on.",
        "arn:aws:iam::123456789012:role/streams", exclusive_with=_NO_AWS,
    ),
    Option(
        "KERBEROS PRINCIPAL", "text", "Who logs in.", "app@EXAMPLE.COM",
        required_when=_by("GSSAPI"), exclusive_with=_NO_KERBEROS,
    ),
    Option(
        "KERBEROS KEYTAB", "path",
        "A file with the principal's key, which every process of the cluster sees under this path.",
        "/etc/security/app.keytab",
        required_when=_by("GSSAPI"), exclusive_with=_NO_KERBEROS,
    ),
)  # fmt: skip

CONNECTION = Section(
    options=(
        Option(
            "BROKER", "addresses",
            "Where to reach the cluster: host:port, several separated by commas.",
            "kafka-1.example.com:9092", required=True, moves=True,
        ),
        Option(
            "SECURITY PROTOCOL", "choice", "How to talk to the brokers.", "SASL_SSL",
            default="PLAINTEXT", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        ),
        Option(
            "SASL MECHANISMS", "choice", "How to authenticate.", "SCRAM-SHA-512",
            choices=_MECHANISMS,
            required_when=_NEEDS_SASL, exclusive_with=_NO_SASL,
        ),
        Option(
            "SASL USERNAME", "text", "The user.", "app", secret="may",
            required_when=_NEEDS_SASL, exclusive_with=_not_by(*_BY_PASSWORD),
        ),
        Option(
            "SASL PASSWORD", "text", "The user's password.", "kafka_password", secret="must",
            required_when=_NEEDS_SASL, exclusive_with=_not_by(*_BY_PASSWORD),
        ),
        *_OAUTH,
        *_AWS_AND_KERBEROS,
        *tls_options("brokers' are", "PEM, PKCS#8", "kafka_key", _NO_TLS),
        SSH_TUNNEL_OPTION,
    ),
    open_prefix="kafka.",
    open_help="Any option of the Kafka clients that needs no secret, e.g. "
    "`kafka.client.id` or `kafka.ssl.endpoint.identification.algorithm`.",
    open_names=KAFKA_CLIENT_OPTIONS,
    reserved=_RESERVED,
    client="Kafka's clients",
)  # fmt: skip

SOURCE = Section(
    options=(
        Option(
            "TOPIC", "topics", "The topic to read, or several separated by commas.",
            "orders", required=True, alterable=False,
            fixed_because="its positions mean nothing in another topic; create another source",
            moves=True,
        ),
        Option(
            "START", "position",
            "Where the first start begins: earliest, latest, or a time with its offset.",
            "2026-01-31T00:00:00Z", default="earliest", alterable=False,
            fixed_because=_FIRST_START,
        ),
        Option(
            "START OFFSETS", "splits",
            "Where the first start begins in single partitions: the next record to read, "
            "earliest, latest, or a time with its offset. Others begin at START.",
            "orders:0=123", alterable=False, fixed_because=_FIRST_START,
        ),
        _STRATEGY,
        Option(
            ISOLATION_LEVEL, "choice",
            "Which records of transactions are read: those of committed ones, up to the last "
            "stable offset, or all. CREATE takes it from `kafka.isolation.level` of the "
            "connection where that is set.", "read_committed",
            default="read_committed", choices=("read_committed", "read_uncommitted"),
            earlier="read_uncommitted", from_connection="kafka.isolation.level",
        ),
        *DECODING_OPTIONS,
    ),
    settings=(
        TRIGGER,
        Option(
            "MAX OFFSETS PER TRIGGER", "integer", "At most so many records a batch.", "10000",
            minimum=1,
        ),
    ),
    default_format="JSON",
    formats=("JSON", "TEXT", "BYTES"),
    registered_formats=("AVRO", "PROTOBUF", "JSON SCHEMA"),
    key_formats=("AVRO", "TEXT", "BYTES"),
    includes=("KEY", "PARTITION", "OFFSET", "TIMESTAMP"),
    dead_letters=True,
    records=True,
)  # fmt: skip

SINK = Section(
    options=(
        Option(
            "TOPIC", "topic", "The topic that rows are written to.", "orders",
            required=True, alterable=False,
            fixed_because="rows already sent stay in the old topic; create another sink",
        ),
        _STRATEGY,
        Option(
            "RECORD NAME", "text",
            "The record's name in the schema that is registered; without it the topic's, with _ "
            "for what no name can have.", "shop.Order", alterable=False,
            fixed_because="consumers know the schema by it; create another sink",
        ),
    ),
    settings=(TRIGGER, ON_CHANGE),
    default_format="JSON",
    formats=("JSON",),
    registered_formats=("AVRO", "JSON SCHEMA"),
    row_keys=True,
)  # fmt: skip
