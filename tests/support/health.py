"""A stack that tests share is well again after one of them has failed, and what that one had started is over."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from pymongo import MongoClient

from tests.support import control, rest
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH
from tests.support.site import Site
from towpath import stack as embedded
from towpath.clients.kafka import hanging_transactions
from towpath.clients.kafka.topics import Topics
from towpath.stack import ready

_PATIENCE_S = 60  # for a process that lives to answer


@dataclass(frozen=True, slots=True)
class Before:
    """What was there before the body of a test: running processes of each stack that it uses, and commands."""

    stacks: dict[Path, set[str]]
    commands: set[int]

    @classmethod
    def of(cls, item: pytest.Item) -> Before:
        return cls({place: running(place) for place in _stacks(item)}, {command.pid for command in _commands()})

    def restore(self) -> None:
        """Kill the commands that still run; have what ran before run, answer and take writes again."""
        left = [command for command in _commands() if command.pid not in self.commands]
        for command in left:
            with suppress(psutil.NoSuchProcess):
                print(f"killed what the test has left: {' '.join(command.cmdline())}")
                command.kill()
        psutil.wait_procs(left, 30)
        for place, names in self.stacks.items():
            repair(place, names)
            _unblock(embedded.status(place))
            _end_transactions(embedded.status(place))

    def clear(self) -> None:
        """Remove the connectors that are left in a stack that is still up."""
        for place in self.stacks:
            # a secured one has the users and the pipeline of one file, whose tests share them
            if running(place) and not is_secured(stack := embedded.status(place)):
                url = stack.connect
                until("worker without connectors", lambda url=url: _without_connectors(url), 120, 0.2)


def _stacks(item: pytest.Item) -> Iterator[Path]:
    for value in getattr(item, "funcargs", {}).values():
        place = value if isinstance(value, embedded.Stack | Site) else getattr(value, "stack", None)
        if isinstance(place, embedded.Stack | Site):
            yield place.directory


def _commands() -> Iterator[psutil.Process]:
    """Commands of Towpath's that this process has started, or that those have."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if {str(TOWPATH), "towpath.cli"} & set(process.cmdline()):
                yield process


def running(directory: Path) -> set[str]:
    return {name for name, process in embedded.status(directory).processes.items() if process.running}


def repair(directory: Path, names: Collection[str]) -> None:
    """Have these processes of a stack run and answer: no longer stopped, started again where dead or without answer."""
    for process in embedded.status(directory).processes.values():
        control.send(process, signal.SIGCONT)
    for name in sorted(set(names) - running(directory)):
        print(f"started again: {name}")
        control.start(directory, name, await_ready=False)
    if is_secured(embedded.status(directory)):
        return
    for name in names:
        process = embedded.status(directory).processes[name]
        try:
            ready.await_ready({name: control.check_for(process)}, [process], _PATIENCE_S, lambda words: None)
        except embedded.StackError as error:
            print(f"killed and started again: {error}")
            control.restart(directory, name, signal.SIGKILL)


def is_secured(stack: embedded.Stack) -> bool:
    """Whether its services require a certificate or a password, as those of `tests.support.secured_stack`."""
    return stack.connect.startswith("https:")


def _unblock(stack: embedded.Stack) -> None:
    """Both sides take writes, whatever a cutover was in the middle of; those of a secured stack are not cut over."""
    for uri in () if is_secured(stack) else (stack.source, stack.destination):
        with MongoClient[dict[str, Any]](uri) as client:
            client.admin.command({"setUserWriteBlockMode": 1, "global": False})


def _end_transactions(stack: embedded.Stack) -> None:
    """End transactions whose end a killed broker has lost (KAFKA-20734): no source connector starts with one."""
    if is_secured(stack):
        return
    connectors = rest.get(f"{stack.connect}/connectors", timeout=90).raise_for_status().json()
    with Topics(stack.bootstrap) as topics:
        places = [(topic.name, number) for topic in topics.all().values() for number in range(topic.partitions)]
        for transaction in hanging_transactions.find(topics, connectors, places):
            hanging_transactions.end(topics, transaction)
            print(f"ended what Kafka had lost the end of: {transaction.about}")


def _without_connectors(url: str) -> bool:
    """Removes them; False, to be asked again, where there were some, or while the workers share out their work."""
    try:
        names = rest.get(f"{url}/connectors", timeout=30).raise_for_status().json()
        for name in names:
            print(f"removed what the test has left: {name}")
            httpx.delete(f"{url}/connectors/{name}", timeout=90).raise_for_status()
    except httpx.HTTPError:
        return False
    return not names
