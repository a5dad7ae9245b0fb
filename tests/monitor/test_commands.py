"""Commands of the page, with other programs in place of Towpath."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tests.monitor.test_pages import report
from towpath.monitor import commands as module
from towpath.monitor.commands import Commands, Running
from towpath.monitor.dashboard import Command, Shown


class Dashboard:
    def refresh(self, name: str) -> None:
        assert name == "shop"


@pytest.fixture
def commands() -> Commands:
    return Commands(cast(Any, Dashboard()), lambda name, arguments: ["false"])


@pytest.fixture
def shown() -> Shown:
    return Shown(report(), lambda: None)


@pytest.fixture
def program(commands: Commands) -> Callable[[str], None]:
    """Has every command run this text of a shell."""

    def use(text: str) -> None:
        commands.launcher = lambda name, arguments: ["sh", "-c", text]

    return use


async def ended(command: Command) -> Command:
    until = time.monotonic() + 10
    while command.ended is None and time.monotonic() < until:
        await asyncio.sleep(0.02)
    return command


async def longest_pause(of: Awaitable[Any]) -> float:
    """For how long nothing else got its turn in the event loop, in seconds."""
    task, longest = asyncio.ensure_future(of), 0.0
    while not task.done():
        began = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
    await task
    return longest


def test_the_server_answers_while_a_command_that_ended_leaves_its_output_open(
    commands: Commands, shown: Shown, program: Callable[[str], None]
) -> None:
    program("sleep 1.5 & echo done")

    async def run() -> float:
        command = commands.start(shown, "pause")
        pause = await longest_pause(ended(command))
        assert (command.words, command.exit) == ("done", 0)
        return pause

    assert asyncio.run(run()) < 1


def test_a_command_can_be_started_again_after_a_fault(
    commands: Commands, shown: Shown, program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("absent")

    program("echo {}; exec sleep 60")
    monkeypatch.setattr(module, "_read", fail)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        command = commands.start(shown, "verify")
        with pytest.raises(Running):
            commands.start(shown, "verify")
        await ended(command)
        assert command.words == "a fault of Towpath: KeyError('absent')"
        program("echo again >&2")
        assert (await ended(commands.start(shown, "verify"))).words == "again"

    asyncio.run(run())


def test_what_runs_ends_with_the_server(commands: Commands, shown: Shown, program: Callable[[str], None]) -> None:
    program("echo begun; exec sleep 60")

    async def run() -> None:
        command = commands.start(shown, "pause")
        while command.words != "begun":
            await asyncio.sleep(0.02)
        (child,) = commands._children.values()
        assert await longest_pause(commands.close()) < 0.5
        assert child.exit_code is not None

    asyncio.run(run())
