"""Self-signed certificates for 127.0.0.1, made by the ``keytool`` that every Java runtime has."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

import msgspec

from catalog_migrate.errors import PrerequisiteMissing
from tests.services.kafka_properties import BrokerKeys, Keystore
from tests.services.process import ServiceFailed

_TIMEOUT = 60.0
_SHORT_RUN = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto")


class Certificates(msgspec.Struct, frozen=True):
    """The broker's keys, the PEM file that its clients trust, and the keys of a client ``app``."""

    server: BrokerKeys
    pem: Path
    client: Keystore


def make_certificates(directory: Path, java: str) -> Certificates:
    """Make keys and certificates of a broker and of a client ``app`` in ``directory``.

    The broker's is for 127.0.0.1 and localhost, and the broker trusts the client's. ``java`` is the
    Java program beside which keytool is looked for. Raises
    :class:`~catalog_migrate.errors.PrerequisiteMissing` when there is no keytool.
    """
    keytool = _find_keytool(java)
    directory.mkdir(parents=True, exist_ok=True)
    broker = _make_pair(keytool, directory, "broker", "CN=127.0.0.1")
    client = _make_pair(keytool, directory, "client", "CN=app")
    pem = _export(keytool, broker)
    trusted = Keystore(directory / "trusted.p12", client.password)
    _run(
        [
            keytool,
            "-importcert",
            "-noprompt",
            "-alias",
            "client",
            "-file",
            str(_export(keytool, client)),
            *_store(trusted),
        ]
    )
    return Certificates(BrokerKeys(broker, trusted), pem, client)


def _find_keytool(java: str) -> str:
    beside = Path(java).resolve().with_name("keytool")
    found = str(beside) if beside.is_file() else shutil.which("keytool")
    if found is None:
        raise PrerequisiteMissing(
            f"there is no keytool beside {java} and none on the PATH",
            remedy="install a whole Java runtime (Debian and Ubuntu: apt-get install"
            " openjdk-17-jre-headless); keytool belongs to it",
        )
    return found


def _make_pair(keytool: str, directory: Path, name: str, subject: str) -> Keystore:
    keystore = Keystore(directory / f"{name}.p12", secrets.token_hex(12))
    _run(
        [
            keytool,
            "-genkeypair",
            "-alias",
            name,
            "-keyalg",
            "EC",
            "-groupname",
            "secp256r1",
            "-dname",
            subject,
            "-ext",
            "SAN=IP:127.0.0.1,DNS:localhost",
            "-ext",
            "BC:critical=ca:true",
            "-validity",
            "30",
            *_store(keystore),
        ]
    )
    return keystore


def _export(keytool: str, keystore: Keystore) -> Path:
    """The certificate of a pair as a PEM file beside it."""
    pem = keystore.path.with_suffix(".pem")
    alias = keystore.path.stem
    _run([keytool, "-exportcert", "-rfc", "-alias", alias, "-file", str(pem), *_store(keystore)])
    return pem


def _store(keystore: Keystore) -> list[str]:
    """keytool's arguments for a keystore, its password in a file rather than a process list."""
    secret = keystore.path.with_suffix(".password")
    secret.write_text(keystore.password, encoding="utf-8")
    return ["-storetype", "PKCS12", "-keystore", str(keystore.path), "-storepass:file", str(secret)]


def _run(command: list[str]) -> None:
    keytool, *arguments = command
    answer = subprocess.run(
        [keytool, *_SHORT_RUN, *arguments], capture_output=True, text=True, timeout=_TIMEOUT,
        check=False, errors="replace",
    )
    if answer.returncode != 0:
        said = f"{answer.stdout}{answer.stderr}".strip()
        raise ServiceFailed(f"keytool could not make a certificate: {said}")
