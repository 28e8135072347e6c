"""Secrets stay hidden, and references lead to values or to a typed error."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_migrate.connectors import secrets
from catalog_migrate.connectors.secrets import Redactor, Secret, parse_reference, resolve, schemes
from catalog_migrate.errors import UnresolvedSecret

VALUE = "MARKER-5f2a\"\\' x"


class TestSecret:
    """The value comes out by one door."""

    def test_hidden(self) -> None:
        """No way of printing shows the value."""
        secret = Secret(VALUE)
        shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{secret:>9}"]
        shown += [repr({"p": secret}), repr([secret]), str((secret,))]
        assert all("MARKER" not in text for text in shown)
        assert secret.reveal() == VALUE

    def test_written_to_nothing(self) -> None:
        """Serialising a secret is an error that does not hold it."""
        secret = Secret(VALUE)
        for write in (pickle.dumps, json.dumps, msgspec.json.encode, msgspec.msgpack.encode, vars):
            with pytest.raises(TypeError) as caught:
                write(secret)
            assert "MARKER" not in str(caught.value)
        with pytest.raises(TypeError):
            hash(secret)

    def test_equality(self) -> None:
        """Secrets compare by value, and with nothing else."""
        assert Secret("ä") == Secret("ä")
        assert Secret("a") != Secret("b")
        assert Secret("a") != "a"

    def test_copies(self) -> None:
        """A copy of options holds the same secret."""
        options = {"P": Secret("a")}
        assert copy.deepcopy(options) == options == copy.copy(options)


class TestResolve:
    """References."""

    def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """env: reads a variable at the time of asking."""
        monkeypatch.setenv("CM_TEST", "one")
        assert resolve("env:CM_TEST").reveal() == "one"
        monkeypatch.setenv("CM_TEST", "two")
        assert resolve("env:CM_TEST").reveal() == "two"
        monkeypatch.delenv("CM_TEST")
        with pytest.raises(UnresolvedSecret, match="env:CM_TEST: there is no such variable"):
            resolve("env:CM_TEST")
        monkeypatch.setenv("CM_TEST", "")
        with pytest.raises(UnresolvedSecret, match="is empty"):
            resolve("env:CM_TEST")

    @pytest.mark.parametrize(
        ("content", "value"),
        [("v\n", "v"), ("v\r\n", "v"), ("v", "v"), ("v\n\n", "v\n"), (" v ", " v "), ("ä\n", "ä")],
    )
    def test_file(self, tmp_path: Path, content: str, value: str) -> None:
        """file: reads a file without its one last line end."""
        place = tmp_path / "secret"
        place.write_bytes(content.encode())
        assert resolve(f"file:{place}").reveal() == value

    def test_files_that_do_not_do(self, tmp_path: Path) -> None:
        """Each way in which a file fails is a typed error that names the reference."""
        (tmp_path / "binary").write_bytes(b"MARKER\xff")
        (tmp_path / "big").write_bytes(b"x" * (secrets.MAX_BYTES + 1))
        (tmp_path / "empty").write_bytes(b"\n")
        for name, why in {
            "missing": "no such file",
            ".": "it is a directory",
            "binary": "no UTF-8 text",
            "big": "more than",
            "empty": "is empty",
        }.items():
            with pytest.raises(UnresolvedSecret, match=why) as caught:
                resolve(f"file:{tmp_path / name}")
            assert caught.value.reference.startswith("file:")
            assert "MARKER" not in "".join(traceback.format_exception(caught.value))
        with pytest.raises(UnresolvedSecret, match="does not begin at the root"):
            resolve("file:relative")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_file_without_permission(self, tmp_path: Path) -> None:
        """A file that this account may not read is said to be that."""
        place = tmp_path / "secret"
        place.write_text("v")
        place.chmod(0)
        with pytest.raises(UnresolvedSecret, match="may not read"):
            resolve(f"file:{place}")

    @pytest.mark.parametrize("text", ["MARKER", "vault:MARKER", "env:", ":MARKER", "ENV:MARKER"])
    def test_no_reference(self, text: str) -> None:
        """A text that is no reference is not shown: it may be the value itself."""
        with pytest.raises(UnresolvedSecret) as caught:
            parse_reference(text)
        assert "MARKER" not in str(caught.value)
        assert "'env:…' or 'file:…'" in str(caught.value)

    def test_entry_points(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other packages add schemes, cannot replace ours, and their errors are not repeated."""
        points = [
            EntryPoint(name, f"{__name__}_plugin:{name}", secrets.ENTRY_POINTS)
            for name in ("upper", "broken", "env")
        ]

        def load(point: EntryPoint) -> object:
            return {"upper": str.upper, "broken": _broken, "env": str.upper}[point.name]

        monkeypatch.setattr(secrets, "entry_points", lambda group: points)
        monkeypatch.setattr(EntryPoint, "load", load)
        monkeypatch.setenv("CM_TEST", "one")
        assert schemes() == ("broken", "env", "file", "upper")
        assert resolve("upper:abc").reveal() == "ABC"
        assert resolve("env:CM_TEST").reveal() == "one"
        with pytest.raises(UnresolvedSecret) as caught:
            resolve("broken:x")
        assert caught.value.message.endswith("the reader of broken: failed (builtins.KeyError)")
        assert "MARKER" not in "".join(traceback.format_exception(caught.value))
        assert caught.value.__context__ is None


def _broken(rest: str) -> str:
    raise KeyError("MARKER")


class TestRedactor:
    """Texts of others are freed of values."""

    @given(st.text(min_size=4, max_size=30).filter(lambda text: len(text.strip()) > 3))
    def test_every_form(self, value: str) -> None:
        """A value is found plain, and as URLs, JSON, SQL, JAAS and base64 write it."""
        redactor = Redactor([Secret(value)])
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        for form in (
            value,
            quote(value, safe=""),
            quote(value, safe="").lower() if value.isascii() and value.islower() else quote(value),
            quote_plus(value),
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            value.replace("'", "''"),
            escaped,
            base64.b64encode(value.encode()).decode(),
        ):
            assert redactor.scrub(f"<<{form}>>") == "<<***>>"

    def test_longest_first(self) -> None:
        """A value that begins with another one goes whole."""
        redactor = Redactor([Secret("abcd"), Secret("abcdefgh")])
        assert redactor.scrub("abcdefgh abcd") == "*** ***"

    def test_lines_of_a_key(self) -> None:
        """Each long line of a key is found by itself, its frame stays readable."""
        key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----\n"
        scrubbed = Redactor([Secret(key)]).scrub("bad line MIIEvQIBADANBgkqhkiG9w0B in key")
        assert scrubbed == "bad line *** in key"

    def test_short_values_only_as_words(self) -> None:
        """A value of one letter does not blacken every text."""
        assert Redactor([Secret("a")]).scrub("a banana, password=a") == "*** banana, password=***"

    def test_hides_itself(self) -> None:
        """A redactor shows nothing and cannot be written."""
        redactor = Redactor.of({"A": "x", "P": Secret("MARKER")})
        assert "MARKER" not in repr(redactor)
        with pytest.raises(TypeError):
            pickle.dumps(redactor)
        assert Redactor([]).scrub("text") == "text"
