"""Redirects of HTTP servers that we log in to: none is followed."""

from __future__ import annotations

from typing import Any
from urllib.request import HTTPRedirectHandler


class NoRedirects(HTTPRedirectHandler):
    """An answer that leads elsewhere is the answer: a redirected login would go on as a GET, and
    tell another server the secret."""

    def redirect_request(self, *_: Any) -> None:
        """None: not followed."""
