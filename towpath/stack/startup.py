"""Java's caches of classes that are loaded and linked already: with them a start takes a third of the work.

Java makes such a cache from a run that it has recorded (JEP 483, 514), and ignores one that does not fit.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from towpath.errors import StackError
from towpath.stack import plan, processes, record, tools
from towpath.stack.parts import FAST_JAVA, Parts, Progress, digest, part
from towpath.stack.processes import Process
from towpath.stack.ready import await_ready, check_for
from towpath.stack.record import StackOptions

_READY_S, _WRITTEN_S = 180.0, 120.0
_NO_PROFILES = "-XX:TieredStopAtLevel=1"  # compiling by those of a start takes longer than the start
_DOING = "recording how Kafka and Connect start, so that they start in half the time from now on"


def with_caches(installed: Parts, progress: Progress) -> Parts:
    """These parts with the caches for their Java and jars, which are made if need be.

    Without them where Java is too old, or where they cannot be made, which `progress` then says.
    """
    release = installed.java.resolve().parents[1] / "release"
    found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8"), re.M) if release.is_file() else None
    if found is None or int(found[1]) < FAST_JAVA:
        return installed
    # what Java compares, and ignores a cache if it differs
    jars = [(str(jar), jar.stat().st_size, jar.stat().st_mtime) for jar in sorted(installed.libs.glob("*.jar"))]
    options = [word for word in plan.java_command(installed, 0, "") if word.startswith("-XX")]
    key = digest([release.read_bytes(), repr((jars, options)).encode()])
    try:
        caches = part("caches", key, _DOING, lambda place: _make(place, installed), progress)
    except StackError as error:
        progress(f"Kafka and Connect start more slowly than they could: {error}")
        return installed
    return dataclasses.replace(installed, caches=caches)


def _make(place: Path, installed: Parts) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent) as folder, ThreadPoolExecutor() as pool:
        recorded = _record(StackOptions(Path(folder)), installed)
        list(pool.map(lambda process: _create(process, place / f"{process.kind}.aot"), recorded))


def _record(options: StackOptions, installed: Parts) -> list[Process]:
    """Start a broker and a worker, and end them once they are ready; Java records each next to its log."""
    record.prepare(options.directory, "conf", "data", "logs", "secrets")
    ports = processes.ports_for(options.port_names, None, {})
    plan.write_files(options, ports, installed)
    tools.run("format the broker", plan.format_command(installed, options.configuration(options.brokers[0])))
    planned, started = plan.processes_of(options, ports, installed), list[Process]()
    try:
        for name in (*options.brokers, *options.workers):
            command = _command(planned[name], "record", *planned[name].command[1:])
            started.append(processes.spawn(dataclasses.replace(planned[name], command=command)))
        await_ready({it.name: check_for(it) for it in started}, started, _READY_S, lambda words: None)
        for process in reversed(started):
            processes.stop([process], _WRITTEN_S)
    finally:
        processes.stop(started, 0)
    return [planned[process.name] for process in started]


def _create(process: Process, cache: Path) -> None:
    options = process.command[1 : process.command.index("-cp") + 2]
    tools.run(f"make {cache.name}", _command(process, "create", f"-XX:AOTCache={cache}", *options))


def _command(process: Process, mode: str, *options: str) -> tuple[str, ...]:
    recording = f"-XX:AOTConfiguration={process.log.with_suffix('.aotconf')}"
    return (process.command[0], f"-XX:AOTMode={mode}", recording, _NO_PROFILES, *options)
