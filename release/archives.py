"""The archives of jars: the connector plugin, in the layout of Confluent's component archives, and Kafka for a stack.

The same files give the same bytes: names are sorted, times fixed, nothing is compressed (jars are already).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LEGAL = ("LICENSE", "release/NOTICE")
_DOC = ("CHANGELOG.md", "README.md", *_LEGAL)
_ETC = (
    "connectors/worker.properties",
    *(
        f"towpath/stack/monitoring/{name}"
        for name in ("alerts.yaml", "dashboard.json", "prometheus.yaml", "workers.yaml")
    ),
)


def of_plugin(folder: Path, version: str, directory: Path) -> Path:
    """Write the archive of a plugin folder, as `towpath stack plugin` makes it, into the directory."""
    manifest = {"version": version} | json.loads((ROOT / "release" / "manifest.json").read_text(encoding="utf-8"))
    entries = [("manifest.json", json.dumps(manifest, indent=2).encode() + b"\n")]
    entries += [*_files("doc", _DOC), *_files("etc", _ETC), *_jars("lib", folder)]
    return _write(f"{manifest['owner']['username']}-{manifest['name']}-{version}", entries, directory)


def of_kafka(folder: Path, version: str, directory: Path) -> Path:
    """Write the archive of a folder of `towpath.stack.parts.jars` without its connectors into the directory."""
    entries = [*_files("doc", _LEGAL), *_jars("libs", folder / "libs")]
    return _write(f"towpath-kafka-{version}", [*entries, *_jars("agent", folder / "agent")], directory)


def _files(place: str, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    return ((f"{place}/{Path(name).name}", (ROOT / name).read_bytes()) for name in names)


def _jars(place: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    return ((f"{place}/{jar.name}", jar.read_bytes()) for jar in folder.glob("*.jar"))


def _write(name: str, entries: Iterable[tuple[str, bytes]], directory: Path) -> Path:
    file = directory / f"{name}.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for inside, content in sorted(entries):
            entry = zipfile.ZipInfo(f"{name}/{inside}")
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return file
