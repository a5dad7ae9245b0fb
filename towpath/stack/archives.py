"""Archives of loaded classes (class data sharing), with which broker and worker start in two thirds of the time.

A JVM writes its archive when it ends. Therefore a broker and a worker run once before the first stack, and the cache
keeps their archives. A JVM that cannot use its archive, because Java or a jar has changed, starts without it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from towpath.stack import parts, plan, processes, ready, state
from towpath.stack.errors import StackError
from towpath.stack.parts import Parts, Progress
from towpath.stack.processes import Process

_TIMEOUT_S, _GRACE_S = 60.0, 30.0


def with_archives(installed: Parts, progress: Progress) -> Parts:
    """The parts with their archives; a Java that writes none leaves that folder empty. Raises `FolderUnusable`."""
    java = subprocess.run([installed.java, "-version"], capture_output=True, check=False).stderr
    key = hashlib.sha256(java + str(installed.libs).encode()).hexdigest()[:16]
    doing = "preparing quick starts of Kafka and Connect"
    return dataclasses.replace(
        installed, archives=parts.part("archives", key, doing, partial(_make, installed), progress)
    )


def _make(installed: Parts, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        archives = Path(folder) / "archives"
        with suppress(StackError):  # a stack that cannot start reports the reason itself
            _run_once(installed, archives, Path(folder))
            archives.rename(place)


def _run_once(installed: Parts, archives: Path, folder: Path) -> None:
    """Run a broker and a worker once, from start to end."""
    state.prepare(folder, archives.name, "secrets")
    broker, controller, worker = state.free_ports(3)
    values = {
        plan.BROKER: plan.broker_properties(folder / "data", broker, [controller]),
        plan.WORKER: plan.worker_properties(folder, f"{state.HOST}:{broker}", worker, installed.plugins),
    }
    files = {main: plan.write_properties(folder / main, properties) for main, properties in values.items()}
    log = folder / "log"
    processes.run_to_end("kafka's StorageTool", plan.format_command(installed, files[plan.BROKER]), log)
    planned = [
        Process("kafka", "kafka", _writing(installed, archives, plan.BROKER, files[plan.BROKER]), broker, log),
        Process("connect", "connect", _writing(installed, archives, plan.WORKER, files[plan.WORKER]), worker, log),
    ]
    running: list[Process] = []
    try:
        for process in planned:
            running.append(processes.spawn(process))
        checks = {process.name: ready.check_for(process) for process in running}
        ready.wait(checks, running, _TIMEOUT_S, lambda words: None)
    finally:
        for process in reversed(running):  # the worker first: it would hang while it leaves a broker that is gone
            processes.stop([process], _GRACE_S)


def _writing(installed: Parts, archives: Path, main: str, configuration: Path) -> tuple[str, ...]:
    program, *words = plan.java_command(installed, 512, main, str(configuration))
    return (program, f"-XX:ArchiveClassesAtExit={plan.archive(archives, main)}", *words)
