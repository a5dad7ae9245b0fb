"""Commands that the page and the API may start: those of the command line, as child processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from towpath.checks.rule import Finding
from towpath.config.events import BadLine, CutoverNote, Difference, Gate, Repaired, Reread, Verdict, parse
from towpath.config.text import counted
from towpath.monitor.dashboard import Command, Dashboard, Shown
from towpath.run.children import Child, Launcher, end

#: Name → arguments of `towpath`. The cutover itself is not among them: it stays on the command line.
COMMANDS: Mapping[str, Sequence[str]] = {
    "pause": ("pause",),
    "resume": ("resume",),
    "restart": ("restart",),
    "verify": ("verify", "--json"),
    "repair": ("repair", "--yes", "--json"),
    "repair-dead-letters": ("repair", "--dead-letters", "--json"),
    "cutover-dry-run": ("cutover", "--dry-run", "--json"),
}
_TICK = 0.2  # seconds
_GRACE = 10.0  # seconds in which a command may end with the server


class Running(Exception):
    """The same command runs for this pipeline."""


@dataclass(slots=True)
class Commands:
    """Used in the server's event loop, whose thread the children die with."""

    dashboard: Dashboard
    launcher: Launcher
    _children: dict[tuple[str, str], Child] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self, shown: Shown, name: str) -> Command:
        """Start a command of a pipeline. Raises `Running`."""
        pipeline, (started, *options) = shown.report.name, COMMANDS[name]
        if (pipeline, started) in self._children:
            raise Running(f"`towpath {started}` of {pipeline} was started here and has not ended")
        child = Child.start(started, self.launcher(started, [shown.report.file, *options]))
        self._children[pipeline, started] = child
        command = Command(name, began=round(time.time(), 3), words="started")
        shown.commands.append(command)
        task = asyncio.get_running_loop().create_task(self._follow(shown, command, child))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.dashboard.refresh(pipeline)
        return command

    async def _follow(self, shown: Shown, command: Command, child: Child) -> None:
        name, is_json = shown.report.name, "--json" in COMMANDS[command.command]
        try:
            await self._read_lines(name, command, child, is_json=is_json)
            if child.exit_status and not (is_json and child.exit_status == 1):
                command.words = child.end_reason
        except Exception as error:
            child.kill(f"a fault of Towpath: {error!r}")
            command.words = child.end_reason
            raise
        finally:  # else the command could not be started again
            command.exit, command.ended = child.exit_status, round(time.time(), 3)
            del self._children[name, child.verb]
            shown.hurry()
            self.dashboard.refresh(name)

    async def _read_lines(self, name: str, command: Command, child: Child, *, is_json: bool) -> None:
        counts = {"differences": 0, "documents": 0}
        has_ended = False
        while not has_ended:
            has_ended = child.exit_status is not None
            before = command.words
            # the last lines may keep one waiting
            for line in await asyncio.to_thread(list, child.lines()) if has_ended else child.lines():
                if line.stream == "err" or not is_json:
                    command.words = line.shown if line.text.strip() else command.words
                else:
                    _read(command, line.text, counts)
            if command.words != before:
                self.dashboard.refresh(name)
            if not has_ended:
                await asyncio.sleep(_TICK)

    async def close(self) -> None:
        """Interrupt what still runs."""
        children = list(self._children.values())
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(end, children, _GRACE)


def _read(command: Command, text: str, counts: dict[str, int]) -> None:
    try:
        event = parse(text)
    except BadLine:
        command.words = "printed a line that cannot be read"
        return
    match event:
        case Difference():
            counts["differences"] += 1
            command.words = f"{counted(counts['differences'], 'difference')} so far"
        case Verdict():
            command.words = f"{event.verdict}: {counted(event.compared, 'document')} compared in {event.seconds:.1f} s"
        case Reread():
            counts["documents"] += 1
            command.words = f"{counted(counts['documents'], 'document')} so far"
        case Repaired():
            command.words = f"{event.repaired:,} repaired, {event.left:,} left, in {event.seconds:.1f} s"
        case Gate():
            command.checks = tuple(Finding(**finding) for finding in event.findings)
        case CutoverNote():
            command.words = event.words or command.words
