"""What each client library is given."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors.files.client import files_directory, spark_files_options
from catalog_migrate.connectors.kafka.client import (
    _jaas,
    librdkafka_config,
    spark_kafka_options,
    spark_kafka_sink_options,
    spark_kafka_source_options,
)
from catalog_migrate.connectors.postgres.client import postgres_parameters, quoted_table
from catalog_migrate.connectors.resolved import trigger_seconds
from catalog_migrate.connectors.secrets import Secret
from catalog_migrate.connectors.validation import validate_connection
from catalog_migrate.errors import InvalidOptions, PrerequisiteMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SASL = {
    "BROKER": "a:1,b:2",
    "SECURITY PROTOCOL": "SASL_SSL",
    "SASL MECHANISMS": "SCRAM-SHA-512",
    "SASL USERNAME": 'u"\\',
    "SASL PASSWORD": Secret('p"\\;='),
    "SSL CERTIFICATE AUTHORITY": "-----BEGIN CERTIFICATE-----\nca\n",
    "SSL CERTIFICATE": "-----BEGIN CERTIFICATE-----\nmine\n",
    "SSL KEY": Secret("-----BEGIN ENCRYPTED PRIVATE KEY-----\nkey\n"),
    "SSL KEY PASSWORD": Secret("kp"),
}


class TestKafka:
    """Spark's options and librdkafka's, from the same connection."""

    def test_spark(self) -> None:
        """Everything that a login over TLS needs, in the Java clients' names, quoted for JAAS."""
        assert spark_kafka_options(SASL) == {
            "kafka.bootstrap.servers": "a:1,b:2",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required"
                r' username="u\"\\" password="p\"\\;=";'
            ),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nca\n",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----\nmine\n",
            "kafka.ssl.keystore.key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nkey\n",
            "kafka.ssl.key.password": "kp",
            "kafka.request.timeout.ms": "3000",
            "kafka.default.api.timeout.ms": "5000",
            "fetchOffset.numRetries": "1",
            "fetchOffset.retryIntervalMs": "200",
        }

    def test_librdkafka(self) -> None:
        """The same for librdkafka, in its names."""
        assert librdkafka_config(SASL) == {
            "bootstrap.servers": "a:1,b:2",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": 'u"\\',
            "sasl.password": 'p"\\;=',
            "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nca\n",
            "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----\nmine\n",
            "ssl.key.pem": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nkey\n",
            "ssl.key.password": "kp",
            "socket.timeout.ms": 6000,
            "socket.connection.setup.timeout.ms": 3000,
            "reconnect.backoff.ms": 500,
            "client.id": "catalog_migrate",
        }

    def test_token(self) -> None:
        """OAUTHBEARER: both clients ask the endpoint, and trust the same authority there."""
        resolved = {
            "BROKER": "a:1", "SECURITY PROTOCOL": "SASL_SSL", "SASL MECHANISMS": "OAUTHBEARER",
            "OAUTH TOKEN ENDPOINT": "https://t/token", "OAUTH CLIENT ID": "app",
            "OAUTH CLIENT SECRET": Secret('s"'), "OAUTH SCOPE": "a b",
            "OAUTH EXTENSIONS": "pool=p,tenant=t",
            "OAUTH CERTIFICATE AUTHORITY": "-----BEGIN CERTIFICATE-----\nca\n",
        }
        java = {n: v for n, v in spark_kafka_options(resolved).items() if "sasl" in n}
        oauth = "org.apache.kafka.common.security.oauthbearer"
        assert java == {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.jaas.config": (
                f'{oauth}.OAuthBearerLoginModule required password="" clientId="app" '
                'clientSecret="s\\"" scope="a b" extension_pool="p" extension_tenant="t" '
                'ssl.truststore.type="PEM" '
                r'ssl.truststore.certificates="-----BEGIN CERTIFICATE-----\nca\n";'
            ),
            "kafka.sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://t/token",
        }
        config = librdkafka_config(resolved)
        AdminClient({**config, "error_cb": lambda _: None, "log_level": 0})  # all of it is known
        assert {n: v for n, v in config.items() if "oauth" in n or n.startswith("https")} == {
            "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": 's"', "sasl.oauthbearer.scope": "a b",
            "sasl.oauthbearer.token.endpoint.url": "https://t/token",
            "sasl.oauthbearer.extensions": "pool=p,tenant=t",
            "https.ca.pem": "-----BEGIN CERTIFICATE-----\nca\n",
        }
        del resolved["OAUTH CERTIFICATE AUTHORITY"]
        assert librdkafka_config(resolved)["https.ca.location"] == "probe"

    def test_aws(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """AWS_MSK_IAM: classes of AWS's jar for Java, for librdkafka what AWS's package signs."""
        resolved = {
            "BROKER": "a:1", "SECURITY PROTOCOL": "SASL_SSL", "SASL MECHANISMS": "AWS_MSK_IAM",
            "AWS REGION": "eu-central-1", "AWS ROLE": "arn:r",
        }
        java = {n: v for n, v in spark_kafka_options(resolved).items() if "sasl" in n}
        msk = "software.amazon.msk.auth.iam"
        assert java == {
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "kafka.sasl.jaas.config": (
                f'{msk}.IAMLoginModule required awsRoleArn="arn:r" awsStsRegion="eu-central-1";'
            ),
            "kafka.sasl.client.callback.handler.class": f"{msk}.IAMClientCallbackHandler",
        }
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
        with pytest.raises(PrerequisiteMissing, match="not installed") as caught:
            librdkafka_config(resolved)
        assert "pip install aws-msk-iam-sasl-signer-python" in str(caught.value)

        class Provider:
            @staticmethod
            def generate_auth_token_from_role_arn(region: str, role: str) -> tuple[str, int]:
                return f"{region} {role}", 1_500

        signer = types.SimpleNamespace(MSKAuthTokenProvider=Provider)
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
        config = librdkafka_config(resolved)
        assert config["sasl.mechanism"] == "OAUTHBEARER"
        assert config["oauth_cb"]("") == ("eu-central-1 arn:r", 1.5)

    def test_kerberos(self) -> None:
        """GSSAPI: the keytab by its path, in both; another service by an option of Kafka's own."""
        resolved = {
            "BROKER": "a:1", "SECURITY PROTOCOL": "SASL_PLAINTEXT", "SASL MECHANISMS": "GSSAPI",
            "KERBEROS PRINCIPAL": "app@X", "KERBEROS KEYTAB": "/k",
            "kafka.sasl.kerberos.service.name": "bus",
        }
        java = {n: v for n, v in spark_kafka_options(resolved).items() if "sasl" in n}
        assert java == {
            "kafka.sasl.mechanism": "GSSAPI",
            "kafka.sasl.jaas.config": (
                "com.sun.security.auth.module.Krb5LoginModule required "
                'useKeyTab="true" storeKey="true" keyTab="/k" principal="app@X";'
            ),
            "kafka.sasl.kerberos.service.name": "bus",
        }
        assert {n: v for n, v in librdkafka_config(resolved).items() if "kerberos" in n} == {
            "sasl.kerberos.principal": "app@X", "sasl.kerberos.keytab": "/k",
            "sasl.kerberos.service.name": "bus",
        }
        found = validate_connection("KAFKA", resolved, subject="connection c")
        assert "libsasl2" in (found[0].remedy or "")

    def test_plain(self) -> None:
        """Without a protocol it is PLAINTEXT, and nothing of SASL or TLS is there."""
        options = spark_kafka_options({"BROKER": "a:1"})
        assert options["kafka.security.protocol"] == "PLAINTEXT"
        assert not [name for name in options if "sasl" in name or "ssl" in name]

    def test_own_options_win(self) -> None:
        """kafka.* options go to Spark as they are; librdkafka gets those that it knows."""
        own = {
            "BROKER": "a:1",
            "kafka.request.timeout.ms": "20000",
            "kafka.client.id": "me",
            "kafka.linger.ms": "5",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
        options = spark_kafka_options(own)
        assert options["kafka.request.timeout.ms"] == "20000"
        assert options["kafka.default.api.timeout.ms"] == "20000"
        assert options["kafka.linger.ms"] == "5"
        config = librdkafka_config(own)
        assert config["client.id"] == "me"
        assert config["ssl.endpoint.identification.algorithm"] == "none"
        assert "linger.ms" not in config
        assert spark_kafka_sink_options(own, {"TOPIC": "t"})["kafka.delivery.timeout.ms"] == "30000"

    def test_source(self) -> None:
        """A source reads its topics from its start, and never accepts losses."""
        options = spark_kafka_source_options(
            {"BROKER": "a:1"},
            {"TOPIC": "a,b", "START": "2026-01-31T00:00:00.000Z"},
            {"MAX OFFSETS PER TRIGGER": "10"},
        )
        assert options["subscribe"] == "a,b"
        assert options["failOnDataLoss"] == "true"
        assert options["startingTimestamp"] == "1769817600000"
        assert options["maxOffsetsPerTrigger"] == "10"
        assert "startingOffsets" not in options
        plain = spark_kafka_source_options({"BROKER": "a:1"}, {"TOPIC": "a"}, {})
        assert plain["startingOffsets"] == "earliest"

    def test_key_in_the_old_form(self) -> None:
        """A key that the Java clients cannot read is refused with the command that converts it."""
        old = Secret("-----BEGIN RSA PRIVATE KEY-----\nMARKER\n")
        with pytest.raises(InvalidOptions, match="PKCS#8") as caught:
            spark_kafka_options({**SASL, "SSL KEY": old})
        assert "openssl pkcs8" in str(caught.value)
        assert "MARKER" not in str(caught.value)

    @given(st.text(max_size=20), st.text(max_size=20))
    def test_jaas_text_is_read_back(self, user: str, password: str) -> None:
        """A tokenizer with Java's rules gets user and password back, whatever they hold."""
        text = _jaas("PLAIN", user, password)
        assert _quoted_strings(text) == [user, password]


def _quoted_strings(text: str) -> list[str]:
    """The strings of a text as java.io.StreamTokenizer reads them between double quotes."""
    found, position = [], 0
    while (position := text.find('"', position) + 1) > 0:
        value = ""
        while text[position] != '"':
            assert text[position] not in "\r\n", "Java ends a string here"
            if text[position] == "\\":
                position += 1
                value += {"n": "\n", "r": "\r"}.get(text[position], text[position])
            else:
                value += text[position]
            position += 1
        found.append(value)
        position += 1
    return found


@pytest.mark.spark
def test_jaas_text_is_read_by_kafkas_own_parser(spark: SparkSession) -> None:
    """Kafka's parser gets back user and password with quotes, backslashes and line ends."""
    gateway: Any = spark.sparkContext._gateway
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    name = "org.apache.kafka.common.security.JaasContext"
    types = spark.sparkContext._jvm.java.util.HashMap()
    jvm = gateway.jvm
    password_class = jvm.java.lang.Class.forName(
        "org.apache.kafka.common.config.types.Password", True, loader
    )
    user, password = 'u "x\\y', "p\\\"'\n;=\r ü"
    made = password_class.getConstructors()[0].newInstance(
        _array(gateway, _jaas("PLAIN", user, password))
    )
    types.put("sasl.jaas.config", made)
    context_class = jvm.java.lang.Class.forName(name, True, loader)
    load = next(m for m in context_class.getMethods() if m.getName() == "loadClientContext")
    entry = load.invoke(None, _array(gateway, types)).configurationEntries().get(0)
    options = entry.getOptions()
    assert (options.get("username"), options.get("password")) == (user, password)


def _array(gateway: Any, value: Any) -> Any:
    """A Java array of one object."""
    array = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    array[0] = value
    return array


POSTGRES = {"HOST": "h", "DATABASE": "d", "USER": "u", "PASSWORD": Secret("p")}


class TestPostgres:
    """psycopg's parameters."""

    def test_parameters(self) -> None:
        """Defaults are filled in, and libpq is kept from looking elsewhere for a password."""
        parameters = postgres_parameters(POSTGRES)
        assert {name: parameters[name] for name in ("host", "port", "dbname", "user")} == {
            "host": "h", "port": 5432, "dbname": "d", "user": "u"
        }
        assert parameters["password"] == "p"
        assert parameters["sslmode"] == "prefer"
        assert not Path(parameters["passfile"]).exists()
        without = {name: value for name, value in POSTGRES.items() if name != "PASSWORD"}
        assert postgres_parameters(without)["password"] == ""

    def test_material(self) -> None:
        """Certificates and keys are files that nobody else can read, and no file has a name."""
        resolved = {
            **POSTGRES,
            "SSL MODE": "verify-ca",
            "SSL CERTIFICATE AUTHORITY": "ca\n",
            "SSL CERTIFICATE": "mine\n",
            "SSL KEY": Secret("key\n"),
        }
        parameters = postgres_parameters(resolved)
        texts = [Path(parameters[n]).read_text() for n in ("sslrootcert", "sslcert", "sslkey")]
        assert texts == ["ca\n", "mine\n", "key\n"]
        mode = os.stat(parameters["sslkey"])
        assert stat.S_ISREG(mode.st_mode)
        assert stat.S_IMODE(mode.st_mode) == 0o600
        if sys.platform == "linux":
            assert parameters["sslkey"].startswith("/proc/self/fd/")
        assert postgres_parameters(resolved) == parameters

    def test_verify_full_trusts_the_platform(self) -> None:
        """verify-full without certificates takes the system's, verify-ca has its own."""
        full = postgres_parameters({**POSTGRES, "SSL MODE": "verify-full"})
        assert full["sslrootcert"] == "system"
        assert "sslrootcert" not in postgres_parameters(POSTGRES)

    def test_private_file(self, tmp_path: Path) -> None:
        """Where memory has no path, a private file takes its place and goes with the process."""
        program = (
            "import os; from catalog_migrate.connectors.resolved import _private_file; "
            "path = _private_file('key'); "
            "print(path, oct(os.stat(path).st_mode & 0o777), open(path).read())"
        )
        printed = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        ).stdout.split()  # fmt: skip
        assert printed[1:] == ["0o600", "key"]
        assert Path(printed[0]).parent == tmp_path
        assert list(tmp_path.iterdir()) == []

    def test_quoted_table(self) -> None:
        """Names are quoted after they were folded."""
        assert quoted_table('Public."Or""ders"') == '"public"."Or""ders"'


class TestFiles:
    """Directories and reader options."""

    def test_directory(self, tmp_path: Path) -> None:
        """A source stays below its connection's directory, by symbolic links too."""
        inside, outside = tmp_path / "in", tmp_path / "out"
        inside.mkdir()
        outside.mkdir()
        (inside / "link").symlink_to(outside)
        resolved = {"PATH": str(inside)}
        assert files_directory(resolved) == inside
        assert files_directory(resolved, "sub") == inside / "sub"
        for sub in ("../out", "link", "/etc"):
            with pytest.raises(InvalidOptions, match="leads out"):
                files_directory(resolved, sub)

    def test_reader_options(self) -> None:
        """files.* options lose their prefix; PATTERN and the batch size are Spark's."""
        assert spark_files_options(
            {"PATH": "/d", "files.header": "true"},
            {"PATTERN": "*.csv"},
            {"MAX FILES PER TRIGGER": "3"},
        ) == {"header": "true", "pathGlobFilter": "*.csv", "maxFilesPerTrigger": "3"}

    def test_trigger(self) -> None:
        """A trigger is a second unless it says otherwise."""
        assert trigger_seconds({}) == 1.0
        assert trigger_seconds({"TRIGGER": "500 milliseconds"}) == 0.5
