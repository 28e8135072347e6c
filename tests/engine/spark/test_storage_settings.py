"""Storage options, named once as delta-rs names them, as settings of Spark's S3A."""

from __future__ import annotations

import pytest

from catalog_migrate.engine.spark import session
from catalog_migrate.engine.spark.jars import pyspark_version, read_locked_jars
from catalog_migrate.engine.spark.object_stores.commit_safety import LogStoreInUse, unsafe
from catalog_migrate.engine.spark.object_stores.settings import (
    S3_PYSPARK,
    SETTINGS,
    hadoop_settings,
    needs_s3,
    s3_jars,
)
from catalog_migrate.engine.spark.session import session_conf
from catalog_migrate.store.address import Storage

S3A = "org.apache.hadoop.fs.s3a"
SDK = "software.amazon.awssdk.auth.credentials"
PROVIDER = "fs.s3a.aws.credentials.provider"


def _settings(env: dict[str, str] | None = None, **options: str) -> dict[str, str]:
    return hadoop_settings(Storage(options), env or {})


def test_a_server_with_a_login() -> None:
    """Endpoint, region and keys: paths name the bucket, and http is spoken where it is written."""
    assert _settings(
        aws_endpoint_url="http://127.0.0.1:9", aws_allow_http="true", aws_region="eu-1",
        aws_access_key_id="k", aws_secret_access_key="s",
    ) == {
        "fs.s3a.endpoint": "http://127.0.0.1:9",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "eu-1",
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        PROVIDER: f"{S3A}.SimpleAWSCredentialsProvider",
    }


@pytest.mark.parametrize("spelling", ["AWS_SESSION_TOKEN", "aws_token", "session_token", "token"])
def test_a_temporary_login(spelling: str) -> None:
    """A token goes with the keys, by whichever of its names."""
    settings = _settings(access_key_id="k", secret_access_key="s", **{spelling: "t"})
    assert settings["fs.s3a.session.token"] == "t"
    assert settings[PROVIDER] == f"{S3A}.TemporaryAWSCredentialsProvider"


def test_a_virtual_host() -> None:
    """A bucket may be part of the server's name."""
    settings = _settings(endpoint="https://o.example", virtual_hosted_style_request="true")
    assert settings["fs.s3a.path.style.access"] == "false"
    assert settings["fs.s3a.connection.ssl.enabled"] == "true"


def test_variables_stay_where_they_are() -> None:
    """Keys from the environment are read there by S3A; where they lead is taken from it too."""
    settings = _settings({
        "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "eu-1",
        "AWS_ENDPOINT_URL": "https://o.example", "PROFILE": "not ours",
    })
    assert settings[PROVIDER] == f"{SDK}.EnvironmentVariableCredentialsProvider"
    assert settings["fs.s3a.endpoint"] == "https://o.example"
    assert settings["fs.s3a.endpoint.region"] == "eu-1"
    assert "hidden" not in settings.values()


@pytest.mark.parametrize(
    ("env", "options", "provider"),
    [
        ({}, {"aws_profile": "p"}, f"{S3A}.auth.ProfileAWSCredentialsProvider"),
        ({"AWS_PROFILE": "p"}, {}, f"{S3A}.auth.ProfileAWSCredentialsProvider"),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_ROLE_ARN": "arn"}, {},
         f"{SDK}.WebIdentityTokenFileCredentialsProvider"),
        ({}, {"skip_signature": "true"}, f"{S3A}.AnonymousAWSCredentialsProvider"),
        ({}, {}, f"{S3A}.auth.IAMInstanceCredentialsProvider"),
        ({"AWS_PROFILE": "p"}, {"aws_access_key_id": "k", "aws_secret_access_key": "s"},
         f"{S3A}.SimpleAWSCredentialsProvider"),
    ],
)
def test_credentials(env: dict[str, str], options: dict[str, str], provider: str) -> None:
    """Profile, web identity, none, and those of the machine; options stand above variables."""
    assert hadoop_settings(Storage(options), env)[PROVIDER] == provider


def test_a_role() -> None:
    """A role is assumed with whatever credentials there are."""
    settings = _settings(
        {"AWS_PROFILE": "p"}, aws_iam_role_arn="arn:r", aws_iam_role_session_name="n",
        aws_region="eu-1", aws_endpoint_url_sts="https://sts.example",
    )
    assert settings == {
        PROVIDER: f"{S3A}.auth.AssumedRoleCredentialProvider",
        "fs.s3a.assumed.role.arn": "arn:r",
        "fs.s3a.assumed.role.session.name": "n",
        "fs.s3a.assumed.role.credentials.provider": f"{S3A}.auth.ProfileAWSCredentialsProvider",
        "fs.s3a.assumed.role.sts.endpoint": "https://sts.example",
        "fs.s3a.assumed.role.sts.endpoint.region": "eu-1",
        "fs.s3a.auth.profile.name": "p",
        "fs.s3a.endpoint.region": "eu-1",
    }


@pytest.mark.skipif(pyspark_version() not in S3_PYSPARK, reason="no jars for S3 are locked")
def test_only_an_address_on_s3_asks_for_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local session is as light as ever: no jar, no setting."""
    asked: list[object] = []
    monkeypatch.setattr(session, "ensure_jars", lambda _, jars=None: asked.append(jars) or [])
    for addresses in ((), (None, "/a"), ("/a", "s3a://b")):
        session.session_jars(addresses)
    ours = read_locked_jars()
    assert asked == [(*ours,), (*ours,), (*ours, *s3_jars())]
    assert needs_s3([None, "/a", "S3A://b/c"])
    assert not needs_s3([None, "/s3", "file:/a", "gs://b", "s3"])
    assert len(s3_jars()) == 31
    bytes_of = {"4.1.1": 12_765_335}.get(pyspark_version(), 12_940_190)
    assert sum(jar.size for jar in s3_jars()) == bytes_of
    assert not set(SETTINGS) & set(session_conf([]))
    assert set(session_conf([], on_s3=True)) - set(session_conf([])) == set(SETTINGS)


@pytest.mark.parametrize(
    ("hadoop", "remedy"),
    [
        ("3.4.1", "use Spark 4.1 or newer, whose Hadoop writes on a condition"),
        ("3.4.1-amzn-2", "use Spark 4.1 or newer, whose Hadoop writes on a condition"),
        ("3.4.2", "set spark.delta.logStore.s3.impl to catalogmigrate."),
        ("3.5.0", "set spark.delta.logStore.s3.impl to catalogmigrate."),
    ],
)
def test_unsafe_commits_are_remedied_by_what_hadoop_can_do(hadoop: str, remedy: str) -> None:
    """Our LogStore needs a Hadoop that writes on a condition: an older one is said so."""
    error = unsafe(LogStoreInUse("s3://bucket", "io.delta.storage.S3SingleDriverLogStore", hadoop))
    assert (error.remedy or "").startswith(remedy)
    assert (error.remedy or "").endswith("if no other process ever writes to these tables")
