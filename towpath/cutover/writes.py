"""Stopping the writes to a cluster, and watching for late writes after that."""

from __future__ import annotations

import os
import re
import select
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from pymongo.change_stream import ChangeStream
from pymongo.errors import ConnectionFailure, PyMongoError

from towpath.bookkeeping.positions import DATABASE
from towpath.cutover.events import Reporter
from towpath.errors import TowpathError
from towpath.events import CutoverNote
from towpath.mongo import write_block
from towpath.mongo.client import connected
from towpath.mongo.uri import without_credentials
from towpath.pipeline import Pipeline
from verifier.errors import Unsuitable
from verifier.proof import token_time
from verifier.reads import Client, brief, now

#: Advice when nobody can confirm that the writes have stopped.
ANSWER = "answer with Enter, or use --stop-with or --block-writes"
#: The program that a command starts with, unless it is quoted or expanded by the shell.
_PROGRAM = re.compile(r"\s*([\w@%+:,./-]+)(?=[\s;&|]|$)")
_HOOK_S = 600  # seconds that a command of the user may take
_BLOCK_S, _REPORT_S = 33.0, 3.0  # seconds for open transactions to end, and of those to find out whose they are


@dataclass(frozen=True, slots=True)
class WriteStop:
    """How to stop the writes to the cluster `side` at `uri`: by the user's `command`, by a write block, or by hand."""

    uri: str
    side: str
    command: str | None
    blocks: bool

    @property
    def is_manual(self) -> bool:
        """Whether a person has to stop the writes and confirm it."""
        return self.command is None and not self.blocks

    def wait_for_confirmation(self, reporter: Reporter) -> None:
        """Return when somebody confirms that the writes have stopped. Raises `TowpathError` when nobody can."""
        words = f"Stop all writes to {self._where} now, then press Enter; Ctrl-C leaves all as it is"
        reporter.report(CutoverNote(event="stop writes", words=words))
        if not sys.stdin.readline():
            raise TowpathError(f"nobody said that the writes are stopped: standard input has ended; {ANSWER}")

    def stop(self, reporter: Reporter, remaining: Callable[[float], float]) -> None:
        """Run the command and block the writes, as configured. Raises `TowpathError`.

        `remaining` limits a number of seconds to what the pause still allows.
        """
        if self.command is not None:
            with reporter.step("stopping the writers"):
                hook(self.command)
        if self.blocks:
            with reporter.step(f"blocking writes to {self._where}"), connected(self.uri, self.side) as client:
                write_block.block(client, patience=remaining(_BLOCK_S) - _REPORT_S)
            if self.command is None:
                words = f"writes to {self._where} are blocked from now on"
                reporter.report(CutoverNote(event="stop writes", words=words))

    @property
    def _where(self) -> str:
        return f"the {self.side} ({without_credentials(self.uri)})"


def hook(command: str) -> None:
    """Run a command of the user; its output goes to standard error. Raises `TowpathError` when it fails.

    It keeps the terminal, where it may ask for a password. Whatever ends it early also ends what it has started.
    """
    process = subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        status = process.wait(_HOOK_S)
    except BaseException as error:
        _end_with_children(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TowpathError(f"{command!r} did not end within {_HOOK_S} s, and was ended") from error
        raise
    if status:
        raise TowpathError(f"{command!r} ended with exit status {status}")


def _end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and its descendants. Each is suspended first, so that none starts another one in the meantime."""
    suspended: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        while running := [one for one in (root, *root.children(recursive=True)) if one not in suspended]:
            for one in running:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
            suspended += running
    for one in suspended:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def command_problem(command: str) -> str:
    """Why the shell cannot run a command, as far as can be seen without running it; empty if nothing is wrong."""
    syntax = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)
    if syntax.returncode:
        return f"{command!r} is not a valid command: {syntax.stderr.strip()}"
    program = _PROGRAM.match(command)
    if program is None or shutil.which(program[1]):
        return ""
    if "/" in program[1]:
        return f"{program[1]} does not exist or cannot be executed"
    lookup = subprocess.run(["/bin/sh", "-c", 'command -v "$0"', program[1]], capture_output=True, check=False)
    return f"there is no command {program[1]}" if lookup.returncode else ""


def stdin_problem() -> str:
    """Why nobody can answer on standard input; empty if somebody can."""
    try:
        file, mode = sys.stdin.fileno(), os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return "standard input is closed"
    if stat.S_ISCHR(mode.st_mode) and mode.st_rdev == Path(os.devnull).stat().st_rdev:
        return f"standard input is {os.devnull}"
    poll = select.poll()
    poll.register(file, select.POLLIN)
    ended = any(event & select.POLLHUP and not event & select.POLLIN for _, event in poll.poll(0))
    return "standard input has ended" if ended else ""


def allow(uri: str, side: str) -> None:
    """Unblock writes. Raises `TowpathError` with how to do so by hand."""
    with connected(uri, side) as client:
        write_block.unblock(client)


def writes_through(uri: str, side: str) -> bool:
    """Whether this user can write while the cluster blocks the writes of applications."""
    with connected(uri, side) as client:
        return write_block.writes_through(client)


_AWAIT_MS = 50
_RETRY_S, _POLL_S, _JOIN_S = 0.2, 0.02, 1.0
_DOCUMENT = "documentKey"


class LateWrites:
    """Watches everything that a pipeline captures, on a thread and from its creation on; also new collections.

    It calls `end` once, with a message, for the first write, or when it cannot watch. Raises `Unsuitable` for a
    standalone, which has no change streams.
    """

    def __init__(self, client: Client, pipeline: Pipeline, side: str, end: Callable[[str], None]) -> None:
        since = now(client)
        if since is None:
            raise Unsuitable(f"the {side} is a standalone mongod, which has no change stream to watch for writes")
        self._client, self._pipeline, self._side, self._end = client, pipeline, side, end
        self._since = self._seen = since
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="late writes", daemon=True)

    def __enter__(self) -> LateWrites:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_S)  # does not wait for a server that does not answer

    def catch_up(self) -> None:
        """Return once the watch has passed every write before this call; after a late write, never return."""
        until = now(self._client) or self._since
        while self._seen < until:
            time.sleep(_POLL_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with watch(self._client, self._pipeline, start_at_operation_time=self._since) as stream:
                    self._follow(stream)
                    return
            except ConnectionFailure:
                self._stopped.wait(_RETRY_S)
            except PyMongoError as error:
                if not self._stopped.is_set():
                    self._end(f"cannot watch the {self._side} for writes: {brief(error)}")
                return

    def _follow(self, stream: ChangeStream[Any]) -> None:
        while not self._stopped.is_set():
            event = stream.try_next()
            if event is None:
                self._seen = token_time(stream.resume_token)
            elif event["clusterTime"] > self._since:
                self._end(self._message(event))
                return

    def _message(self, event: Mapping[str, Any]) -> str:
        id = event.get(_DOCUMENT, {}).get("_id")
        document = "" if id is None else f" of _id {dumps(id, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False)}"
        at = event["clusterTime"].as_datetime().strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"writes continued after the stop: {event['namespace']} got the {event['operationType']}{document} at {at}"
            f" on the {self._side}. Documents deleted by a TTL index count as well: then try again, or use"
            " --block-writes, which stops TTL deletes"
        )


def watch(client: Client, pipeline: Pipeline, **start: Any) -> ChangeStream[Any]:
    """A change stream of what the pipeline captures, with the added fields `namespace` and `renamed` (the new name)."""
    selected = {"$regex": pipeline.selection.namespace_regex}
    stages: list[Mapping[str, Any]] = [
        {
            "$project": {
                **dict.fromkeys(("operationType", "ns", _DOCUMENT, "clusterTime"), 1),
                "namespace": {"$concat": ["$ns.db", ".", "$ns.coll"]},
                "renamed": {"$concat": ["$to.db", ".", "$to.coll"]},
            }
        },
        {"$match": {"ns.db": {"$ne": DATABASE}, "$or": [{"namespace": selected}, {"renamed": selected}]}},
    ]
    return client.watch(stages, max_await_time_ms=_AWAIT_MS, **start)
