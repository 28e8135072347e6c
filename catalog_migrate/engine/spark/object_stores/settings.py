"""What Spark needs for object stores: jars, fixed settings, and those made of storage options.

Options are named once, as delta-rs calls them; here they become those of Hadoop's S3A, which serves
``s3://`` as well as ``s3a://``. Their values are handed to the JVM when it runs: not on its command
line, and not as settings of Spark, which its pages, event logs and ``SET`` show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from os import environ
from types import MappingProxyType

from catalog_migrate.engine.spark.jars import LockedJar, locked_pyspark, read_locked_jars
from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.store.address import Storage

SCHEMES = ("s3", "s3a")
"""Schemes that S3A serves."""

LOG_STORE = "catalogmigrate.ConditionalPutLogStore"
MANAGED_BY = "spark.sql.streaming.checkpointFileManagerClass"
CHECKPOINT_MANAGER = "catalogmigrate.ConditionalPutCheckpointFileManager"

SETTINGS: Mapping[str, str] = MappingProxyType({
    "spark.delta.logStore.s3a.impl": LOG_STORE,
    "spark.delta.logStore.s3.impl": LOG_STORE,
    MANAGED_BY: CHECKPOINT_MANAGER,
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
})
"""Settings of a session with rows or checkpoints on S3, whatever its options are."""

S3_PYSPARK = ("4.1.1", "4.2.0")
"""Versions of PySpark with a lock for S3: Hadoop writes on a condition since 3.4.2."""

_PACKAGE = "catalog_migrate.engine.spark.object_stores"
_S3A = "org.apache.hadoop.fs.s3a"
_SDK = "software.amazon.awssdk.auth.credentials"
_NAMES: Mapping[str, tuple[str, ...]] = {
    "key": ("access_key_id",),
    "secret": ("secret_access_key",),
    "token": ("session_token", "token"),
    "region": ("region", "default_region"),
    "endpoint": ("endpoint_url_s3", "endpoint_url", "endpoint"),
    "virtual": ("virtual_hosted_style_request",),
    "anonymous": ("skip_signature",),
    "profile": ("profile",),
    "role": ("iam_role_arn", "s3_assume_role_arn", "role_arn"),
    "role_session": ("iam_role_session_name", "s3_role_session_name", "role_session_name"),
    "sts": ("endpoint_url_sts",),
    "identity": ("web_identity_token_file",),
}
"""What an option is here: its names with delta-rs, with or without ``aws_`` before them."""


def needs_s3(addresses: Iterable[str | None]) -> bool:
    """Return whether anything at one of these addresses is on S3."""
    return any(
        address.partition("://")[0].lower() in SCHEMES
        for address in addresses if address is not None and "://" in address
    )


def s3_jars() -> tuple[LockedJar, ...]:
    """The committed lock of what S3A needs beside the jars of the PySpark that is installed.

    Raises :class:`PrerequisiteMissing` where that one's Hadoop cannot commit safely on S3.
    """
    version = locked_pyspark()
    if version not in S3_PYSPARK:
        raise PrerequisiteMissing(
            f"PySpark {version} has a Hadoop without conditional writes: its commits to S3 could"
            " write over those of other processes",
            remedy=f"use PySpark {' or '.join(S3_PYSPARK)} for rows on S3, or keep them on a disk",
            version=version,
        )
    return read_locked_jars(_PACKAGE, f"s3-{version}.lock.json")


def own_jar() -> str:
    """The path of the jar with our Java: the LogStore and the manager of checkpoint files."""
    return str(resources.files(_PACKAGE).joinpath("catalog-migrate-spark.jar"))


def hadoop_settings(storage: Storage, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Storage options as settings of Hadoop (``fs.s3a.…``).

    ``env`` are the variables that delta-rs reads too (default: this process'); an option stands
    above them. Credentials that come from a variable stay there: S3A is told to look.
    """
    variables = _name_options(environ if env is None else env, prefix_needed=True)
    given = _name_options(storage.options())
    known = {**variables, **given}
    settings: dict[str, str] = {}
    endpoint = known.get("endpoint")
    if endpoint is not None:
        settings["fs.s3a.endpoint"] = endpoint
        settings["fs.s3a.connection.ssl.enabled"] = str(not endpoint.startswith("http:")).lower()
        settings["fs.s3a.path.style.access"] = str(not _is_on(known.get("virtual"))).lower()
    if "region" in known:
        settings["fs.s3a.endpoint.region"] = known["region"]
    provider = _credentials(given, variables, settings)
    if "role" in known and provider != f"{_SDK}.WebIdentityTokenFileCredentialsProvider":
        settings["fs.s3a.assumed.role.arn"] = known["role"]
        settings["fs.s3a.assumed.role.credentials.provider"] = provider
        settings["fs.s3a.assumed.role.session.name"] = known.get("role_session", "catalog-migrate")
        if "sts" in known:
            settings["fs.s3a.assumed.role.sts.endpoint"] = known["sts"]
        if "region" in known:
            settings["fs.s3a.assumed.role.sts.endpoint.region"] = known["region"]
        provider = f"{_S3A}.auth.AssumedRoleCredentialProvider"
    settings["fs.s3a.aws.credentials.provider"] = provider
    return settings


def _credentials(
    given: Mapping[str, str], variables: Mapping[str, str], settings: dict[str, str]
) -> str:
    """The class that gets credentials; what it needs beside variables goes into ``settings``."""
    if _is_on({**variables, **given}.get("anonymous")):
        return f"{_S3A}.AnonymousAWSCredentialsProvider"
    if "key" in given and "secret" in given:
        settings["fs.s3a.access.key"] = given["key"]
        settings["fs.s3a.secret.key"] = given["secret"]
        if "token" not in given:
            return f"{_S3A}.SimpleAWSCredentialsProvider"
        settings["fs.s3a.session.token"] = given["token"]
        return f"{_S3A}.TemporaryAWSCredentialsProvider"
    if "profile" in given:
        settings["fs.s3a.auth.profile.name"] = given["profile"]
        return f"{_S3A}.auth.ProfileAWSCredentialsProvider"
    if "key" in variables and "secret" in variables:
        return f"{_SDK}.EnvironmentVariableCredentialsProvider"
    if "identity" in variables:
        return f"{_SDK}.WebIdentityTokenFileCredentialsProvider"
    if "profile" in variables:
        settings["fs.s3a.auth.profile.name"] = variables["profile"]
        return f"{_S3A}.auth.ProfileAWSCredentialsProvider"
    return f"{_S3A}.auth.IAMInstanceCredentialsProvider"


def _name_options(options: Mapping[str, str], *, prefix_needed: bool = False) -> dict[str, str]:
    """The options that say anything to Spark, by what they are here."""
    lowered = {
        name.lower().removeprefix("aws_"): value for name, value in options.items()
        if value and (not prefix_needed or name.upper().startswith("AWS_"))
    }
    return {
        meaning: lowered[name]
        for meaning, names in _NAMES.items()
        for name in reversed(names) if name in lowered
    }


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() in ("true", "1", "yes", "on")
