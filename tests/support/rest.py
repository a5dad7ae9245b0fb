"""Requests to the tests' servers, at addresses without TLS."""

from __future__ import annotations

from typing import Any

import httpx

#: Another client would read the certificates, which takes 40 ms. No connection is kept: servers are killed.
_CLIENT = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0))


def get(url: str, timeout: float = 30, **options: Any) -> httpx.Response:
    """As `httpx.get`; `timeout` in seconds."""
    return _CLIENT.get(url, timeout=timeout, **options)


def patch(url: str, changed: dict[str, str], timeout: float = 30) -> httpx.Response:
    """Changes some settings of a connector; `timeout` in seconds."""
    return _CLIENT.patch(url, json=changed, timeout=timeout)
