"""A self-signed certificate for 127.0.0.1, made by the ``keytool`` that every Java runtime has."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from catalog_migrate.errors import PrerequisiteMissing
from catalog_migrate.testing.services.kafka_properties import Keystore
from catalog_migrate.testing.services.process import ServiceFailed

_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's keystore, and the PEM file that its clients trust."""

    keystore: Keystore
    pem: Path


def make_certificate(directory: Path, java: str) -> Certificate:
    """Make a key and a certificate for 127.0.0.1 and localhost in ``directory``.

    ``java`` is the Java program beside which keytool is looked for. Raises
    :class:`~catalog_migrate.errors.PrerequisiteMissing` when there is no keytool.
    """
    beside = Path(java).resolve().with_name("keytool")
    keytool = str(beside) if beside.is_file() else shutil.which("keytool")
    if keytool is None:
        raise PrerequisiteMissing(
            f"there is no keytool beside {java} and none on the PATH",
            remedy="install a whole Java runtime (Debian and Ubuntu: apt-get install"
            " openjdk-17-jre-headless); keytool belongs to it",
        )
    directory.mkdir(parents=True, exist_ok=True)
    keystore = Keystore(directory / "broker.p12", secrets.token_hex(12))
    pem = directory / "ca.pem"
    store = ["-keystore", str(keystore.path), "-storepass:file", str(directory / "storepass")]
    (directory / "storepass").write_text(keystore.password, encoding="utf-8")
    _run(
        [
            keytool,
            "-genkeypair",
            "-alias",
            "broker",
            "-keyalg",
            "EC",
            "-groupname",
            "secp256r1",
            "-dname",
            "CN=127.0.0.1",
            "-ext",
            "SAN=IP:127.0.0.1,DNS:localhost",
            "-ext",
            "BC:critical=ca:true",
            "-validity",
            "30",
            "-storetype",
            "PKCS12",
            *store,
        ]
    )
    _run([keytool, "-exportcert", "-rfc", "-alias", "broker", "-file", str(pem), *store])
    return Certificate(keystore, pem)


def _run(command: list[str]) -> None:
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, errors="replace"
    )
    if answer.returncode != 0:
        said = f"{answer.stdout}{answer.stderr}".strip()
        raise ServiceFailed(f"keytool could not make a certificate: {said}")
