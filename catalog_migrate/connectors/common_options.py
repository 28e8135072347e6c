"""Options that several connectors take, one meaning for each name."""
# ruff: noqa: S106 - `secret="must"` declares a rule, it is no password.

from __future__ import annotations

from catalog_migrate.connectors.values import Option, When

PEM = "-----BEGIN CERTIFICATE-----…"


def tls_options(
    theirs: str, form: str, key: str, without: tuple[When, ...] = ()
) -> tuple[Option, ...]:
    """What TLS takes: whose certificate is checked, how our key is written, a secret's name."""
    return (
        Option(
            "SSL CERTIFICATE AUTHORITY", "pem",
            f"Certificates (PEM) that the {theirs} checked against; without it those that the "
            "platform trusts.", PEM, secret="may", exclusive_with=without,
        ),
        Option(
            "SSL CERTIFICATE", "pem", "Our own certificate chain (PEM).", PEM, secret="may",
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


TRIGGER = Option(
    "TRIGGER", "duration", "How often a batch is begun.", "5 seconds", default="1 second"
)

ON_CHANGE = Option(
    "ON CHANGE", "choice",
    "What to do when rows of the table read are updated or deleted: stop with an error, "
    "or pass over such commits.", "skip",
    default="fail", choices=("fail", "skip"),
)
"""Every sink has it, beside TRIGGER."""

SSH_TUNNEL_OPTION = Option(
    "SSH TUNNEL", "connection",
    "The SSH TUNNEL connection that leads to the server; also written USING SSH TUNNEL t.",
    "bastion",
)
"""For every type whose server may stand behind a tunnel."""

DECODING = "DECODING"
TIMESTAMP_UNIT = "TIMESTAMP UNIT"
ISOLATION_LEVEL = "ISOLATION LEVEL"

DECODING_OPTIONS = (
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
