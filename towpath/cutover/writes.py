"""How the writes to a cluster end, and who writes after that: the stop itself, and late writes."""

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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from pymongo.change_stream import ChangeStream
from pymongo.errors import ConnectionFailure, PyMongoError

from towpath.bookkeeping.positions import DATABASE
from towpath.cutover.events import Telling
from towpath.errors import TowpathError
from towpath.events import CutoverNote
from towpath.mongo import write_block
from towpath.mongo.client import connected
from towpath.mongo_uri import without_credentials
from towpath.pipeline import Pipeline
from verifier.errors import Unsuitable
from verifier.proof import token_time
from verifier.reads import Client, brief, now

#: Who says that the writes have ended, or what ends them.
ANSWER = "answer with Enter, or use --stop-with or --block-writes"
#: The program at a command's beginning; what is quoted, or for the shell to expand, only the shell knows.
_PROGRAM = re.compile(r"\s*([\w@%+:,./-]+)(?=[\s;&|]|$)")
_HOOK_S = 600  # seconds that a command of the user's may take
_BLOCK_S, _TOLD_S = 33.0, 3.0  # seconds for open transactions to end, and of those to find out whose they are


@dataclass(frozen=True, slots=True)
class Stopping:
    """`uri` and `side` are of the cluster; `command` is the user's; `blocks` has the server refuse writes."""

    uri: str
    side: str
    command: str | None
    blocks: bool

    @property
    def asks(self) -> bool:
        """Whether somebody has to say that the writes have ended."""
        return self.command is None and not self.blocks

    def ask(self, telling: Telling) -> None:
        """Return when somebody says that nobody writes any more. Raises `TowpathError` when nobody can."""
        words = f"Stop all writes to {self._where} now, then press Enter; Ctrl-C leaves all as it is"
        telling.tell(CutoverNote(event="stop writes", words=words))
        if not sys.stdin.readline():
            raise TowpathError(f"nobody said that the writes are stopped: standard input has ended; {ANSWER}")

    def stop(self, telling: Telling, left: Callable[[float], float]) -> None:
        """Return when nobody writes any more, as far as can be told. Raises `TowpathError`.

        `left` tells how many of so many seconds a wait may take.
        """
        if self.command is not None:
            with telling.step("stopping the writers"):
                hook(self.command)
        if self.blocks:
            with telling.step(f"blocking writes to {self._where}"), connected(self.uri, self.side) as client:
                write_block.block(client, patience=left(_BLOCK_S) - _TOLD_S)
            if self.command is None:
                words = f"writes to {self._where} are refused from now on"
                telling.tell(CutoverNote(event="stop writes", words=words))

    @property
    def _where(self) -> str:
        return f"the {self.side} ({without_credentials(self.uri)})"


def hook(command: str) -> None:
    """Run a command of the user's; what it prints goes to standard error. Raises `TowpathError` when it fails."""
    try:
        done = subprocess.run(
            command, shell=True, timeout=_HOOK_S, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TowpathError(f"{command!r} did not end within {_HOOK_S} s") from error
    if done.returncode:
        raise TowpathError(f"{command!r} ended with exit status {done.returncode}")


def why_not(command: str) -> str:
    """Why the shell cannot run a command, as far as that is seen without running it; empty when nothing is."""
    read = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)
    if read.returncode:
        return f"{command!r} is no command: {read.stderr.strip()}"
    program = _PROGRAM.match(command)
    if program is None or shutil.which(program[1]):
        return ""
    if "/" in program[1]:
        return f"{program[1]} is not there, or cannot be executed"
    known = subprocess.run(["/bin/sh", "-c", 'command -v "$0"', program[1]], capture_output=True, check=False)
    return f"there is no command {program[1]}" if known.returncode else ""


def unanswered() -> str:
    """Why nobody answers on standard input; empty when somebody may."""
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
    """Let writes through again. Raises `TowpathError` with what does so by hand."""
    with connected(uri, side) as client:
        write_block.unblock(client)


def writes_through(uri: str, side: str) -> bool:
    """Whether this user's writes are taken while those of applications are refused."""
    with connected(uri, side) as client:
        return write_block.writes_through(client)


_AWAIT_MS = 50
_AGAIN_S, _LOOK_S, _JOIN_S = 0.2, 0.02, 1.0
_DOCUMENT = "documentKey"


class LateWrites:
    """Watches on a thread, from its making on, everything that a pipeline takes in: also collections to come.

    `end` is called once, with words, for the first write, or when writes cannot be seen. Raises `Unsuitable` for a
    standalone, which has no change streams.
    """

    def __init__(self, client: Client, pipeline: Pipeline, side: str, end: Callable[[str], None]) -> None:
        since = now(client)
        if since is None:
            raise Unsuitable(f"the {side} is a standalone mongod, on which writes cannot be seen")
        self._client, self._pipeline, self._side, self._end = client, pipeline, side, end
        self._since = self._seen = since
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="late writes", daemon=True)

    def __enter__(self) -> LateWrites:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_S)  # a server that does not answer is not waited for

    def look(self) -> None:
        """Return once all that was written up to this call has been looked at; not at all after a late write."""
        until = now(self._client) or self._since
        while self._seen < until:
            time.sleep(_LOOK_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with watch(self._client, self._pipeline, start_at_operation_time=self._since) as stream:
                    self._follow(stream)
                    return
            except ConnectionFailure:
                self._stopped.wait(_AGAIN_S)
            except PyMongoError as error:
                if not self._stopped.is_set():
                    self._end(f"cannot see whether anything is written to the {self._side}: {brief(error)}")
                return

    def _follow(self, stream: ChangeStream[Any]) -> None:
        while not self._stopped.is_set():
            event = stream.try_next()
            if event is None:
                self._seen = token_time(stream.resume_token)
            elif event["clusterTime"] > self._since:
                self._end(self._words(event))
                return

    def _words(self, event: Mapping[str, Any]) -> str:
        id = event.get(_DOCUMENT, {}).get("_id")
        shown = "" if id is None else f" of _id {dumps(id, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False)}"
        at = event["clusterTime"].as_datetime().strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"writes went on although they were to have ended: {event['namespace']} got the {event['operationType']}"
            f"{shown} at {at}, at the {self._side}. Documents that expire count as well: then try again, or with"
            " --block-writes, under which none expires"
        )


def watch(client: Client, pipeline: Pipeline, **where: Any) -> ChangeStream[Any]:
    """A change stream of what the pipeline takes in; `namespace` is an event's, `renamed` what a collection became."""
    taken_in = {"$regex": pipeline.selection.namespace_regex}
    stages: list[Mapping[str, Any]] = [
        {
            "$project": {
                **dict.fromkeys(("operationType", "ns", _DOCUMENT, "clusterTime"), 1),
                "namespace": {"$concat": ["$ns.db", ".", "$ns.coll"]},
                "renamed": {"$concat": ["$to.db", ".", "$to.coll"]},
            }
        },
        {"$match": {"ns.db": {"$ne": DATABASE}, "$or": [{"namespace": taken_in}, {"renamed": taken_in}]}},
    ]
    return client.watch(stages, max_await_time_ms=_AWAIT_MS, **where)
