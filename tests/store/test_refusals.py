"""What to do about an answer of S3, whoever tells it: obstore, delta-rs or S3A."""

from __future__ import annotations

import pytest

from catalog_migrate.engine_failures import failing
from catalog_migrate.errors import EngineFailure
from catalog_migrate.store.object_store import remedy_of_refusal

KEYS = "the store does not know these keys"
RIGHTS = "have these credentials list the bucket"
EITHER = "correct these keys, or have them list the bucket"
S3A = "java.nio.file.AccessDeniedException: s3a://b/x: getFileStatus on s3a://b/x: "
SDK = "software.amazon.awssdk.services.s3.model.S3Exception: "

SAID = [
    (f"{S3A}{SDK}Check your key (Service: S3, Status Code: 403):SignatureDoesNotMatch", KEYS),
    ("400 Bad Request: <Error><Code>InvalidToken</Code></Error>", KEYS),
    ("400 Bad Request: <Error><Code>ExpiredToken</Code></Error>", "the credentials have expired"),
    (f"{S3A}{SDK}Access Denied (Service: S3, Status Code: 403):AccessDenied", RIGHTS),
    ("403 Forbidden: <Error><Code>AccessDenied</Code></Error>", RIGHTS),
    ("Generic S3 error: part-0.parquet: Access Denied (code: AccessDenied)", RIGHTS),
    (f"{S3A}{SDK}FORBIDDEN (Service: S3, Status Code: 403):null", EITHER),
    ("Bad Request (Service: S3, Status Code: 400)", "get new credentials if these have expired"),
    ("Slow Down (Service: S3, Status Code: 503)", None),
    ("Connection reset by peer", None),
]


@pytest.mark.parametrize(("said", "remedy"), SAID)
def test_what_to_do(said: str, remedy: str | None) -> None:
    """By its code; the answer to HEAD has none, and may be of several causes."""
    found = remedy_of_refusal(said)
    assert (found is None) is (remedy is None)
    assert (found or "").startswith(remedy or "")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (f"{S3A}{SDK}Access Denied (Service: S3, Status Code: 403):AccessDenied", RIGHTS),
        ("java.nio.file.AccessDeniedException: /data/part-0.parquet", ""),
    ],
)
def test_a_failure_of_the_engine(said: str, remedy: str) -> None:
    """It has that remedy where S3 refused; a disk that refuses is another matter."""
    with pytest.raises(EngineFailure) as found, failing("copy a into b"):
        raise OSError(said)
    assert bool(found.value.remedy) is bool(remedy)
    assert (found.value.remedy or "").startswith(remedy)
