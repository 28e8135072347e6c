"""Options that obstore does not know as delta-rs does: endpoints, roles, the HTTP client's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from catalog_migrate.store.address import Storage
from catalog_migrate.store.object_store import ObjectStore, _provider

if TYPE_CHECKING:
    from tests.services.object_store import ObjectStore as Server

pytestmark = pytest.mark.services

ROLE = "arn:aws:iam::123456789012:role/upgrades"


def works(bucket: str, options: dict[str, str]) -> bool:
    """Whether objects are put and read with these options."""
    store = ObjectStore(f"{bucket}/x", Storage(options))
    assert store.put_if_absent("a", b"1")
    return store.read("a") == b"1" and not store.put_if_absent("a", b"2")


@pytest.mark.parametrize("name", ["aws_endpoint_url_s3", "endpoint_url", "AWS_ENDPOINT"])
def test_an_endpoint_has_several_names(object_store: Server, bucket: str, name: str) -> None:
    """Each is the store's address; that of S3 alone counts before the others."""
    options = dict(object_store.options)
    address = options.pop("aws_endpoint_url")
    assert works(bucket, {**options, name: address})
    other = {"aws_endpoint_url": "http://127.0.0.1:1", "aws_endpoint_url_s3": address}
    assert works(f"{bucket}/b", {**options, **other})


def test_a_role_is_taken(
    object_store: Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests carry the credentials that the role's service gave, not those it was asked with."""
    options = dict(object_store.options)
    asked = {
        **options, "aws_iam_role_arn": ROLE, "aws_endpoint_url_sts": options["aws_endpoint_url"],
    }
    assert works(bucket, asked)
    credentials = _provider(dict(asked))
    assert credentials is not None
    given = credentials()
    assert given["token"]
    assert given["access_key_id"] != options["aws_access_key_id"]
    assert _provider(dict(options)) is None
    monkeypatch.setenv("AWS_IAM_ROLE_ARN", ROLE)
    assert _provider(dict(options)) is not None


def test_options_of_the_client(object_store: Server, bucket: str) -> None:
    """They are the HTTP client's, whoever knows them; what is nobody's is passed over."""
    more = {"http1_only": "true", "randomize_addresses": "false", "s3_no_such_option": "1"}
    assert works(bucket, {**object_store.options, **more})
