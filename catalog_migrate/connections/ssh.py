"""What an SSH tunnel is: its options, the key of its server, and what may keep it from opening."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping

import msgspec

from catalog_migrate.connections.findings import Finding
from catalog_migrate.connections.secrets import Secret, reveal

OPTION = "SSH TUNNEL"
"""The option of a connection that goes through a tunnel, and the type of the tunnel itself.

Among resolved options its value is the tunnel's name, and the tunnel's own options stand beside it
as ``SSH TUNNEL HOST`` and so on.
"""
PRIVATE_KEYS = ("PRIVATE KEY", "NEXT PRIVATE KEY")

_FINGERPRINT = re.compile(r"SHA256:([A-Za-z0-9+/]{43})=?\Z")
_TYPE = re.compile(r"(?:ssh|ecdsa|rsa)-[a-z0-9-]+\Z")
_ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa": ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
"""The kinds of keys that a server may have, with the algorithms that make it show one of them."""


class Tunnel(msgspec.Struct, frozen=True):
    """Where a tunnel begins and who logs in; ``name`` begins messages, unless it is the subject."""

    name: str
    host: str
    port: int
    user: str
    keys: tuple[tuple[str, Secret], ...]
    host_key: str

    @property
    def identity(self) -> tuple[str, ...]:
        """What is equal for those who may share one SSH connection; holds no key."""
        digests = (hashlib.sha256(key.reveal().encode()).hexdigest() for _, key in self.keys)
        return (self.host, str(self.port), self.user, self.host_key, *digests)


def tunnel_of(resolved: Mapping[str, str | Secret]) -> Tunnel | None:
    """The tunnel that a connection with these options goes through, None for none."""
    if OPTION not in resolved:
        return None
    prefix = f"{OPTION} "
    options = {
        name[len(prefix):]: value for name, value in resolved.items() if name.startswith(prefix)
    }
    return itself(options, f"tunnel {reveal(resolved[OPTION])}: ")


def itself(options: Mapping[str, str | Secret], name: str = "") -> Tunnel:
    """The tunnel with these options of its own."""
    return Tunnel(
        name=name, host=reveal(options["HOST"]), port=int(reveal(options.get("PORT", "22"))),
        user=reveal(options["USER"]), host_key=reveal(options["HOST KEY"]),
        keys=tuple(
            (name, value) for name in PRIVATE_KEYS
            if isinstance(value := options.get(name), Secret)
        ),
    )


class Refused(Exception):
    """A way that does not open: which option of the tunnel is at fault ("": of the target)."""

    def __init__(self, option: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message
        self.remedy = remedy

    def finding(self, tunnel: Tunnel, subject: str, target: str) -> Finding:
        """For who asked: of a tunnel's own fault it names the tunnel, then the tunnel's option."""
        if not self.option:
            return Finding(subject, target, False, f"{tunnel.name}{self.message}", self.remedy)
        if not tunnel.name:
            return Finding(subject, self.option, False, self.message, self.remedy)
        message = f"{tunnel.name}option {self.option}: {self.message}"
        return Finding(subject, OPTION, False, message, self.remedy)


# -- host keys -------------------------------------------------------------------------------------


def canonical_host_key(text: str) -> str:
    """``SHA256:…`` or ``type base64``; a comment, or the host of a ``known_hosts`` line, is left
    out. Raises ValueError."""
    words = text.split()
    if len(words) == 1 and (match := _FINGERPRINT.match(words[0])):
        return f"SHA256:{match[1]}"
    at = next((number for number, word in enumerate(words[:2]) if _TYPE.match(word)), None)
    if at is None or len(words) < at + 2:
        raise ValueError("a public key on one line, or SHA256: and its fingerprint, is expected")
    kind, data = words[at], words[at + 1]
    try:
        blob = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError("the key on the line is not whole") from error
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind.encode()):
        raise ValueError(f"the key on the line is not of the type {kind}")
    return f"{kind} {data}"


def fingerprint(host_key: str) -> str:
    """``SHA256:…`` of a canonical host key, as ``ssh-keygen -l`` prints it."""
    kind, _, data = host_key.partition(" ")
    if not data:
        return kind
    digest = hashlib.sha256(base64.b64decode(data)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def algorithms(host_key: str = "") -> tuple[tuple[str, ...], ...]:
    """What to ask a server for, in this order, until it shows the key; of a line only its own.

    A fingerprint does not say of which kind its key is.
    """
    kind = host_key.partition(" ")[0]
    family = "ecdsa" if kind.startswith("ecdsa-") else kind
    return (_ALGORITHMS[family],) if family in _ALGORITHMS else tuple(_ALGORITHMS.values())
