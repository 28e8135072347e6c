"""Which options each connector has: one table per type, for connection, source and sink.

Validation, documentation and the test matrix are made from these tables; nothing else in the
package knows an option that is not in them.
"""
# ruff: noqa: S105, S106 - `secret="must"` declares a rule, it is no password.

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal

import msgspec

from catalog_migrate.connectors.client_options import KAFKA_CLIENT_OPTIONS
from catalog_migrate.connectors.values import Option, When

SectionName = Literal["connection", "source", "sink"]


class Reserved(msgspec.Struct, frozen=True):
    """Names under an open prefix that are not free (shell patterns), and what to write instead.

    ``secrets``: a value under such a name is one, or has one in it.
    """

    patterns: tuple[str, ...]
    instead: str
    secrets: bool = False

    def covers(self, name: str) -> bool:
        """Whether ``name`` (without the prefix) is one of them."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


class Section(msgspec.Struct, frozen=True):
    """The options of one kind of item (``options`` in parentheses, ``settings`` after WITH).

    ``open_prefix`` lets any option of the client through under that prefix, as plain text, except
    ``reserved``; ``open_names`` are those that the client has, where that is known. ``formats`` and
    ``includes`` are what FORMAT and INCLUDE take, ``registered_formats`` what FORMAT takes with a
    schema registry, ``key_formats`` what KEY FORMAT then does; ``tables`` is whether TABLES (…)
    stands among the options, ``dead_letters`` whether there is ON ERROR INTO. ``rotation`` are the
    key in use and the next one, which ROTATE KEYS puts in its place.
    """

    options: tuple[Option, ...]
    settings: tuple[Option, ...] = ()
    open_prefix: str | None = None
    open_help: str = ""
    open_names: frozenset[str] | None = None
    reserved: tuple[Reserved, ...] = ()
    formats: tuple[str, ...] = ()
    registered_formats: tuple[str, ...] = ()
    key_formats: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    tables: bool = False
    dead_letters: bool = False
    rotation: tuple[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of options and settings, as declared."""
        return tuple(option.name for option in (*self.options, *self.settings))

    def find(self, name: str) -> Option | None:
        """The declared option or setting ``name`` stands for, whatever its case and spacing."""
        wanted = fold_option(name)
        for option in (*self.options, *self.settings):
            if fold_option(option.name) == wanted:
                return option
        return None

    def is_setting(self, name: str) -> bool:
        """Whether ``name`` belongs after WITH."""
        return any(fold_option(setting.name) == fold_option(name) for setting in self.settings)

    def is_open(self, name: str) -> bool:
        """Whether ``name`` stands under the open prefix and says something after it."""
        prefix = self.open_prefix
        return prefix is not None and name.lower().startswith(prefix) and len(name) > len(prefix)

    def knows(self, name: str) -> bool:
        """Whether the client has the open option ``name``, as far as that is known."""
        return self.open_names is None or name.lower()[len(self.open_prefix or ""):] \
            in self.open_names

    def reserved_for(self, name: str) -> Reserved | None:
        """Why the open option ``name`` is not free, None when it is."""
        bare = name.lower()[len(self.open_prefix or "") :]
        return next((entry for entry in self.reserved if entry.covers(bare)), None)

    def holds_secret(self, name: str) -> bool:
        """Whether the value of ``name`` is a secret, so that no plain text may stand there."""
        option = self.find(name)
        if option is not None:
            return option.secret == "must"
        bare = name.lower()[len(self.open_prefix or "") :]
        return self.is_open(name) and any(
            entry.secrets and entry.covers(bare) for entry in self.reserved
        )


class ConnectorType(msgspec.Struct, frozen=True):
    """One type of connection, with what sources and sinks over it take (None: there are none)."""

    name: str
    help: str
    connection: Section
    source: Section | None
    sink: Section | None
    without_source: str = ""
    without_sink: str = ""

    def section(self, name: SectionName) -> Section | None:
        """The section of that name."""
        if name == "connection":
            return self.connection
        return self.source if name == "source" else self.sink


def fold_option(name: str) -> str:
    """The form option names are compared in: upper case, blanks and underscores one blank."""
    return " ".join(name.replace("_", " ").upper().split())


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


_PEM = "-----BEGIN CERTIFICATE-----…"


def _tls(
    theirs: str, form: str, key: str, without: tuple[When, ...] = ()
) -> tuple[Option, ...]:
    """What TLS takes: whose certificate is checked, how our key is written, a secret's name."""
    return (
        Option(
            "SSL CERTIFICATE AUTHORITY", "pem",
            f"Certificates (PEM) that the {theirs} checked against; without it those that the "
            "platform trusts.", _PEM, secret="may", exclusive_with=without,
        ),
        Option(
            "SSL CERTIFICATE", "pem", "Our own certificate chain (PEM).", _PEM, secret="may",
            required_when=(When("SSL KEY"),), exclusive_with=without,
        ),
        Option(
            "SSL KEY", "pem", f"The key of our certificate ({form}).", key, secret="must",
            required_when=(When("SSL CERTIFICATE"), When("SSL KEY PASSWORD")),
            exclusive_with=without,
        ),
        Option(
            "SSL KEY PASSWORD", "text", "What the key is encrypted with.", f"{key}_password",
            secret="must", exclusive_with=without,
        ),
    )


_TRIGGER = Option(
    "TRIGGER", "duration", "How often a batch is begun.", "5 seconds", default="1 second"
)

_STRATEGY = Option(
    "SUBJECT STRATEGY", "choice",
    "The subject of a topic's values in the schema registry: topic is `<topic>-value`, record the "
    "record's name, topic-record `<topic>-<record>`.", "record",
    default="topic", choices=("topic", "record", "topic-record"),
)
SSH_TUNNEL_OPTION = Option(
    "SSH TUNNEL", "connection",
    "The SSH TUNNEL connection that leads to the server; also written USING SSH TUNNEL t.",
    "bastion",
)
"""For every type whose server may stand behind a tunnel."""

_KAFKA_RESERVED = (
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

DECODING = "DECODING"
TIMESTAMP_UNIT = "TIMESTAMP UNIT"
ISOLATION_LEVEL = "ISOLATION LEVEL"

_DECODING = (
    Option(
        DECODING, "choice",
        "What becomes of a value that the column cannot hold as it was written. `exact`: the record"
        " is bad. `lenient`: as in earlier versions digits are rounded, 1e999 is Infinity, and of a"
        " name that is there twice the last value counts.", "exact",
        default="exact", choices=("exact", "lenient"), earlier="lenient",
    ),
    Option(
        TIMESTAMP_UNIT, "choice",
        "What a JSON number in a TIMESTAMP counts since 1970. Without it seconds, and a number that"
        " lies outside of the years 1900 to 2200 is bad.", "milliseconds",
        choices=("seconds", "milliseconds", "microseconds"),
        exclusive_with=(When(DECODING, ("lenient",)),),
    ),
)  # fmt: skip

_FIRST_START = "only the first start reads it; positions are kept from then on"

_KAFKA_SINK = Section(
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
    settings=(
        _TRIGGER,
        Option(
            "ON CHANGE", "choice",
            "What to do when rows of the table read are updated or deleted: stop with an error, "
            "or pass over such commits.", "skip",
            default="fail", choices=("fail", "skip"),
        ),
    ),
    formats=("JSON",),
    registered_formats=("AVRO", "JSON SCHEMA"),
)  # fmt: skip

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
        "the platform trusts.", _PEM, secret="may", exclusive_with=_NO_OAUTH,
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

KAFKA = ConnectorType(
    name="KAFKA",
    help="An Apache Kafka cluster (or another that speaks its protocol).",
    connection=Section(
        options=(
            Option(
                "BROKER", "addresses",
                "Where to reach the cluster: host:port, several separated by commas.",
                "kafka-1.example.com:9092", required=True,
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
            *_tls("brokers' are", "PEM, PKCS#8", "kafka_key", _NO_TLS),
            SSH_TUNNEL_OPTION,
        ),
        open_prefix="kafka.",
        open_help="Any option of the Kafka clients that needs no secret, e.g. "
        "`kafka.client.id` or `kafka.ssl.endpoint.identification.algorithm`.",
        open_names=KAFKA_CLIENT_OPTIONS,
        reserved=_KAFKA_RESERVED,
    ),
    source=Section(
        options=(
            Option(
                "TOPIC", "topics", "The topic to read, or several separated by commas.",
                "orders", required=True, alterable=False,
                fixed_because="its positions mean nothing in another topic; create another source",
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
            *_DECODING,
        ),
        settings=(
            _TRIGGER,
            Option(
                "MAX OFFSETS PER TRIGGER", "integer", "At most so many records a batch.", "10000",
                minimum=1,
            ),
        ),
        formats=("JSON", "TEXT", "BYTES"),
        registered_formats=("AVRO", "PROTOBUF", "JSON SCHEMA"),
        key_formats=("AVRO", "TEXT", "BYTES"),
        includes=("KEY", "PARTITION", "OFFSET", "TIMESTAMP"),
        dead_letters=True,
    ),
    sink=_KAFKA_SINK,
)  # fmt: skip

_NO_PG_TLS = (When("SSL MODE", ("disable",)),)

POSTGRES = ConnectorType(
    name="POSTGRES",
    help="A PostgreSQL database. Sinks write to its tables, sources read their changes.",
    connection=Section(
        options=(
            Option("HOST", "host", "The server.", "db.example.com", required=True),
            Option(
                "PORT", "integer", "Its port.", "5433", default="5432", minimum=1, maximum=65535
            ),
            Option("DATABASE", "text", "The database.", "shop", required=True),
            Option("USER", "text", "The role.", "app", secret="may", required=True),
            Option("PASSWORD", "text", "The role's password.", "pg_password", secret="must"),
            Option(
                "SSL MODE", "choice", "How much of TLS is insisted on.", "verify-full",
                default="prefer",
                choices=("disable", "prefer", "require", "verify-ca", "verify-full"),
            ),
            Option(
                "SSL CERTIFICATE AUTHORITY", "pem",
                "Certificates (PEM) that the server's is checked against; verify-full without it "
                "takes those that the platform trusts.", _PEM, secret="may",
                required_when=(When("SSL MODE", ("verify-ca",)),), exclusive_with=_NO_PG_TLS,
            ),
            Option(
                "SSL CERTIFICATE", "pem", "Our own certificate (PEM).", _PEM, secret="may",
                required_when=(When("SSL KEY"),), exclusive_with=_NO_PG_TLS,
            ),
            Option(
                "SSL KEY", "pem", "The key of our certificate (PEM).", "pg_key", secret="must",
                required_when=(When("SSL CERTIFICATE"),), exclusive_with=_NO_PG_TLS,
            ),
            SSH_TUNNEL_OPTION,
        ),
    ),
    source=Section(
        options=(
            Option(
                "PUBLICATION", "text",
                "The publication upstream that holds the tables; it is never created for you.",
                "shop_changes", required=True, alterable=False,
                fixed_because="its positions are of the slot that reads this publication; create "
                "another source",
            ),
            Option(
                "SLOT", "text",
                "The replication slot, which the first start creates; by default a name with the "
                "catalog's and the source's id.", "catalog_migrate_shop", alterable=False,
                fixed_because="its positions are of this slot; create another source",
            ),
        ),
        settings=(
            _TRIGGER,
            Option(
                "SOFT DELETES", "boolean",
                "Whether FORMAT MIRROR keeps rows that were deleted upstream, with the time in "
                "_deleted.", "true", default="false", alterable=False,
                fixed_because="the tables would have another column; create another source",
            ),
            Option(
                "UPSTREAM COLUMNS", "choice",
                "What becomes of a column that is added upstream: it is added here too, the source "
                "is held, or it is left out. `follow` is `evolve`, and a column that is gone or "
                "renamed upstream stays here, NULL from then on. By default what the runtime's "
                "`[streams] upstream_columns` says.", "ignore",
                choices=("evolve", "follow", "hold", "ignore"),
            ),
        ),
        formats=("CHANGES", "MIRROR"),
        tables=True,
    ),
    sink=Section(
        options=(
            Option(
                "TABLE", "table",
                "The table that rows are written to; as in SQL, names without double quotes are "
                "lower case.", "public.orders", required=True, alterable=False,
                fixed_because="rows already written stay in the old table; create another sink",
            ),
        ),
        settings=_KAFKA_SINK.settings,
        dead_letters=True,
    ),
)  # fmt: skip

FILES = ConnectorType(
    name="FILES",
    help="A directory of files that every process of the cluster sees under the same path.",
    connection=Section(
        options=(
            Option(
                "PATH", "path", "The directory, from the root.", "/data/landing", required=True,
                alterable=False,
                fixed_because="files are remembered by path, and would all be read again; "
                "create another connection and source",
            ),
            Option(
                "FORMAT", "choice", "How the files are written.", "csv", default="json",
                choices=("json", "csv", "parquet", "text"),
            ),
        ),
        open_prefix="files.",
        open_help="Any option of Spark's reader of that format, e.g. `files.header`.",
        reserved=(
            Reserved(("path", "paths"), "PATH"),
            Reserved(("format",), "FORMAT"),
            Reserved(("pathglobfilter",), "PATTERN of the source"),
            Reserved(("maxfilespertrigger",), "MAX FILES PER TRIGGER of the source"),
            Reserved(
                ("cleansource", "sourcearchivedir", "latestfirst", "filenameonly", "maxfileage",
                 "maxbytespertrigger", "maxcachedfiles", "discardcachedinputratio",
                 "recursivefilelookup", "modifiedbefore", "modifiedafter",
                 "ignoremissingfiles", "ignorecorruptfiles", "columnnameofcorruptrecord"),
                "nothing: the product decides which files and rows count",
            ),
            Reserved(
                ("*password*", "*secret*", "*token*", "*credential*"),
                "nothing: it carries a secret, and is not supported", secrets=True,
            ),
        ),
    ),
    source=Section(
        options=(
            Option(
                "PATH", "path", "A directory below the connection's.", "orders", alterable=False,
                fixed_because="files are remembered by path; create another source",
            ),
            Option(
                "PATTERN", "text", "Which file names count (*, ?, [a-z], {a,b}).", "*.json",
                alterable=False,
                fixed_because="files passed over until now would be read late; "
                "create another source",
            ),
            *_DECODING,
        ),
        settings=(
            _TRIGGER,
            Option(
                "MAX FILES PER TRIGGER", "integer", "At most so many files a batch.", "100",
                minimum=1,
            ),
        ),
        formats=("JSON", "CSV", "PARQUET", "TEXT"),
    ),
    sink=None,
    without_sink="files are read only; write to a table, KAFKA or POSTGRES",
)  # fmt: skip

_ONLY_SCHEMAS = "it holds schemas, no rows; write USING SCHEMA REGISTRY CONNECTION behind FORMAT"

SCHEMA_REGISTRY = ConnectorType(
    name="SCHEMA REGISTRY",
    help="A schema registry that speaks Confluent's API (Confluent, Apicurio, Karapace, Redpanda), "
    "for `FORMAT … USING SCHEMA REGISTRY CONNECTION` of KAFKA sources and sinks.",
    connection=Section(
        options=(
            Option(
                "URL", "url", "Where Confluent's API is.",
                "https://registry.example.com:8081", required=True,
            ),
            Option(
                "USERNAME", "text", "The user of HTTP's basic authentication.", "app", secret="may",
                required_when=(When("PASSWORD"),),
            ),
            Option(
                "PASSWORD", "text", "The user's password.", "registry_password", secret="must",
                required_when=(When("USERNAME"),),
            ),
            *_tls("registry's is", "PEM", "registry_key"),
            SSH_TUNNEL_OPTION,
        ),
    ),
    source=None,
    without_source=_ONLY_SCHEMAS,
    sink=None,
    without_sink=_ONLY_SCHEMAS,
)  # fmt: skip

SSH_TUNNEL = ConnectorType(
    name="SSH TUNNEL",
    help="An SSH server that forwards connections to servers behind it; others go through it with "
    "`USING SSH TUNNEL t`.",
    connection=Section(
        options=(
            Option("HOST", "host", "The SSH server.", "bastion.example.com", required=True),
            Option("PORT", "integer", "Its port.", "2222", default="22", minimum=1, maximum=65535),
            Option("USER", "text", "Who logs in there.", "tunnel", required=True),
            Option(
                "PRIVATE KEY", "text",
                "The key of that user, without a passphrase, as ssh-keygen writes it; the server "
                "has its public one in `authorized_keys`.", "ssh_key", secret="must", required=True,
            ),
            Option(
                "NEXT PRIVATE KEY", "text",
                "The key that ROTATE KEYS puts in its place; the server may know either.",
                "ssh_key_next", secret="must",
            ),
            Option(
                "HOST KEY", "host key",
                "The server's own public key, on one line as in its `ssh_host_…_key.pub`, or its "
                "fingerprint; a server that shows another one is not talked to.",
                "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDBdd0YkcbgxLF6o8c", required=True,
            ),
        ),
        rotation=("PRIVATE KEY", "NEXT PRIVATE KEY"),
    ),
    source=None,
    without_source="a tunnel leads to a server; create the source on that server's connection",
    sink=None,
    without_sink="a tunnel leads to a server; create the sink on that server's connection",
)  # fmt: skip

CONNECTORS: Mapping[str, ConnectorType] = MappingProxyType({
    connector.name: connector
    for connector in (KAFKA, POSTGRES, FILES, SCHEMA_REGISTRY, SSH_TUNNEL)
})
"""Every type by its name."""
