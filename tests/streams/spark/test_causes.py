"""Chains of causes: which condition says most, and no secret in any text."""

from __future__ import annotations

import pytest

from catalog_migrate.connectors.secrets import Redactor, Secret
from catalog_migrate.errors import EngineFailure
from catalog_migrate.streams.spark.running import Cause, explain, python_causes, scrubbed

MARKER = "marker-of-a-password"
REDACTOR = Redactor([Secret(MARKER)])


def test_innermost_condition() -> None:
    """Spark's innermost error class counts, wrappers do not; without one the innermost class."""
    wrapped = [
        Cause("StreamingQueryException", "STREAM_FAILED", "[STREAM_FAILED] Query terminated"),
        Cause("SparkException", None, "Job aborted"),
    ]
    kafka = Cause("KafkaIllegalStateException", "KAFKA_DATA_LOSS.PARTITIONS_DELETED", "gone")
    login = Cause("SaslAuthenticationException", None, "Authentication failed")
    assert explain([*wrapped, kafka], REDACTOR).condition == "KAFKA_DATA_LOSS.PARTITIONS_DELETED"
    assert explain([*wrapped, login], REDACTOR).condition == "SaslAuthenticationException"
    assert explain(wrapped, REDACTOR).condition == "STREAM_FAILED"


def test_no_advice_on_an_option_of_sparks() -> None:
    """What Spark says of failOnDataLoss, which is none of ours, is left out; the reason stays."""
    told = (
        "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost because they are not"
        " available in Kafka any more; either the data was aged out.\nIf you don't want your"
        " streaming query to fail on such cases, set the source option{}failOnDataLoss{} to{}\n"
        "Reason: Partitions t-1 have been deleted. SQLSTATE: 22000"
    )
    for quoted in ((" ", "", " false."), (' "', '"', ' "false".')):
        (cause,) = python_causes(ValueError(told.format(*quoted)), show_values=True)
        assert "failOnDataLoss" not in cause.message
        assert cause.message.endswith("aged out. Reason: Partitions t-1 have been deleted. "
                                      "SQLSTATE: 22000")


def test_chain_is_kept_and_scrubbed() -> None:
    """Each message once, outermost first, the class before it, secrets out."""
    failure = explain(
        [
            Cause("A", None, f"cannot log in with {MARKER}"),
            Cause("A", None, "cannot log in with ***"), Cause("B", None, ""),
        ],
        REDACTOR,
    )  # fmt: skip
    assert failure.causes == ("A: cannot log in with ***", "B")


def test_error_with_a_secret_is_replaced() -> None:
    """An error that tells a secret is replaced with its causes' scrubbed texts; others stay."""
    harmless = ValueError("nothing in here")
    assert scrubbed(harmless, REDACTOR, show_values=True) is harmless
    try:
        try:
            raise KeyError(MARKER)
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as telling:
        replaced = scrubbed(telling, REDACTOR, show_values=True)
    assert isinstance(replaced, EngineFailure)
    assert str(replaced) == "CM0400: ValueError: outer; KeyError: '***'"
    assert replaced.condition == "KeyError"
    assert replaced.__cause__ is None


def chained() -> None:
    """Raise an error while another is handled."""
    try:
        raise OSError("disk full\n\tat somewhere(File.java:1)")
    except OSError:
        raise ValueError("while writing")  # noqa: B904 - the implicit chain is what is tested


def cut() -> None:
    """Raise an error that hides where it came from."""
    try:
        raise OSError("hidden")
    except OSError:
        raise ValueError("shown") from None


def test_python_chain() -> None:
    """Explicit and implicit causes are followed, suppressed ones are not; stacks are cut."""
    with pytest.raises(ValueError, match="while writing") as caught:
        chained()
    assert [str(cause) for cause in python_causes(caught.value, show_values=True)] == [
        "ValueError: while writing", "OSError: disk full",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="shown") as caught:
        cut()
    assert [cause.message for cause in python_causes(caught.value, show_values=True)] == ["shown"]
