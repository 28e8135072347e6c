"""An object store that looks at who asks, when, and whether they may: users, roles and a clock.

Its server is :mod:`tests.services.object_store_server` with a clock.
"""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.services.object_store import ObjectStore

REGION = "us-east-1"
_ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}


class StrictStore(ObjectStore):
    """A running server; :attr:`options` are those of one who may do everything.

    :meth:`user` and :meth:`session` make others, whom policies and time stop.
    """

    def __init__(self, home: Path) -> None:
        self._clock = home / "clock"
        self._numbers = itertools.count(1)
        super().__init__(home)
        everything = self.user()
        self._key = everything["aws_access_key_id"]
        self._secret = everything["aws_secret_access_key"]
        self._control("0")

    def _command(self, port: int) -> list[str]:
        return [*super()._command(port), str(self._clock)]

    def user(self, *denied: str) -> dict[str, str]:
        """Options of a new user, who may do all but these actions (``s3:PutObject``)."""
        name = f"user{next(self._numbers)}"
        iam = self._client("iam")
        iam.create_user(UserName=name)
        iam.put_user_policy(
            UserName=name, PolicyName="all", PolicyDocument=json.dumps(_policy(denied))
        )
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return {
            **self.options, "aws_access_key_id": made["AccessKeyId"],
            "aws_secret_access_key": made["SecretAccessKey"],
        }

    def session(self, seconds: int) -> dict[str, str]:
        """Options with the token of a role, which may do everything for so many seconds."""
        name = f"role{next(self._numbers)}"
        iam = self._client("iam")
        made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_policy()))
        iam.put_role_policy(
            RoleName=name, PolicyName="all", PolicyDocument=json.dumps(_policy())
        )
        given = self._client("sts").assume_role(
            RoleArn=made["Role"]["Arn"], RoleSessionName=name, DurationSeconds=seconds
        )["Credentials"]
        return {
            **self.options, "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["SessionToken"],
        }

    def remove_key(self, options: Mapping[str, str]) -> None:
        """Take a user's key away."""
        iam = self._client("iam")
        key = options["aws_access_key_id"]
        name = next(
            user["UserName"] for user in iam.list_users()["Users"]
            for each in iam.list_access_keys(UserName=user["UserName"])["AccessKeyMetadata"]
            if each["AccessKeyId"] == key
        )
        iam.delete_access_key(UserName=name, AccessKeyId=key)

    def set_clock(self, *, ahead: float) -> None:
        """Have its clock be so many seconds ahead of this machine's."""
        new = self._clock.with_name("clock.new")
        new.write_text(str(ahead))
        new.replace(self._clock)

    def _client(self, service: str) -> Any:
        import botocore.session
        from botocore.config import Config

        return botocore.session.Session().create_client(
            service, region_name=REGION, endpoint_url=self.options["aws_endpoint_url"],
            aws_access_key_id=self._key, aws_secret_access_key=self._secret,
            # AWS gives tokens for fifteen minutes at least
            config=Config(parameter_validation=False),
        )

    def _control(self, count: str) -> None:
        """After so many requests every other one is looked at."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", "/moto-api/reset-auth", count)
            assert connection.getresponse().status == 200
        finally:
            connection.close()

    def _headers(self, method: str, path: str) -> dict[str, str]:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        request = AWSRequest(method, self.options["aws_endpoint_url"] + path)
        S3SigV4Auth(Credentials(self._key, self._secret), "s3", REGION).add_auth(request)
        return dict(request.headers)


def _policy(denied: Iterable[str] = ()) -> dict[str, Any]:
    refused = [{"Effect": "Deny", "Action": each, "Resource": "*"} for each in denied]
    return {"Version": "2012-10-17", "Statement": [_ALL, *refused]}
