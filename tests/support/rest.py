"""Requests to the tests' servers, at addresses without TLS."""

from __future__ import annotations

from typing import Any

import httpx


def get(url: str, timeout: float = 30, **options: Any) -> httpx.Response:
    """As `httpx.get`, without reading the certificates, which takes 40 ms each time; `timeout` in seconds."""
    return httpx.get(url, timeout=timeout, verify=False, **options)


def patch(url: str, changed: dict[str, str], timeout: float = 30) -> httpx.Response:
    """Changes some settings of a connector; `timeout` in seconds."""
    return httpx.patch(url, json=changed, timeout=timeout, verify=False)
