"""`towpath run --listen` and `towpath monitor` as processes, and their clients."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support import api
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH
from towpath.config.pipeline import Run

TOKEN = "0123456789abcdef-token"
HOOKS: Mapping[str, list[Callable[..., Any]]] = {"response": [api.refuse_answer]}


@dataclass(frozen=True, slots=True)
class Served:
    process: subprocess.Popen[bytes]
    url: str
    client: httpx.Client
    """Brings the token."""


@contextmanager
def served(folder: Path, name: str, *arguments: str | Path, options: bool = True) -> Iterator[Served]:
    """The command, which serves at a free port with `TOKEN`, until the end of the `with`; it fails if it complained.

    Without `options`, the pipeline file has to say so; the token is in `folder / "token"`.
    """
    token, out, errors = folder / "token", folder / f"{name}.out", folder / f"{name}.err"
    token.write_text(TOKEN)
    token.chmod(0o600)
    listen = ["--listen", "127.0.0.1:0", "--token-file", token] if options else []
    command = [TOWPATH, name, *arguments, *listen]
    with out.open("w") as stdout, errors.open("w") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        try:
            found = until("address that is served", lambda: _url(process, errors))
            with httpx.Client(
                base_url=found, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, event_hooks=HOOKS
            ) as client:
                yield Served(process, found, client)
            process.terminate()
            process.wait(30)
        finally:
            process.kill()
            process.wait()
    assert errors.read_text().splitlines() == [f"serving {found}"]


def _url(process: subprocess.Popen[bytes], errors: Path) -> str | None:
    assert process.poll() is None, errors.read_text(encoding="utf-8")
    found = re.search(r"serving (http\S+)", errors.read_text(encoding="utf-8"))
    return found[1] if found else None


def listen_at(address: str, **options: Any) -> Run:
    """`[run]` with an address and other options, which are not validated."""
    return Run().changed(listen=address, **options)
