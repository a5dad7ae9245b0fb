"""The files of a release: the archives are complete and the same at every build; the SBOMs name what is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path

import pytest

from release import archives, sbom
from release.__main__ import checksums
from towpath.stack import parts

pytestmark = pytest.mark.servers  # Maven builds the plugin

ROOT = Path(__file__).parents[2]
NAME, KAFKA = "towpath-mongodb-1.2.3", "towpath-kafka-1.2.3"


@pytest.fixture(scope="module")
def plugin() -> Path:
    """The plugin folder of the embedded stack."""
    return parts.plugins(print) / "towpath"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of Kafka."""
    return archives.of_kafka(parts.jars(print), "1.2.3", tmp_path_factory.mktemp("kafka"))


def test_the_archive_has_the_layout_of_a_component_and_every_jar_of_the_plugin_folder(
    plugin: Path, tmp_path: Path
) -> None:
    file = archives.of_plugin(plugin, "1.2.3", tmp_path)
    assert file.name == f"{NAME}.zip"
    with zipfile.ZipFile(file) as archive:
        found = {name.removeprefix(f"{NAME}/"): archive.read(name) for name in archive.namelist()}
    jars = {f"lib/{jar.name}": jar.read_bytes() for jar in plugin.glob("*.jar")}
    assert {name: content for name, content in found.items() if name.startswith("lib/")} == jars
    assert {name.partition("-")[0] for name in jars} >= {"lib/towpath", "lib/debezium", "lib/mongo", "lib/mongodb"}
    assert set(found) - set(jars) == {
        "manifest.json",
        "doc/CHANGELOG.md",
        "doc/LICENSE",
        "doc/NOTICE",
        "doc/README.md",
        "etc/alerts.yaml",
        "etc/dashboard.json",
        "etc/prometheus.yaml",
        "etc/worker.properties",
        "etc/workers.yaml",
    }
    manifest = json.loads(found["manifest.json"])
    assert f"{manifest['owner']['username']}-{manifest['name']}-{manifest['version']}" == NAME
    assert manifest["component_types"] == ["source", "sink", "transform"]


def test_the_same_files_make_the_same_archive_whenever_that_is(plugin: Path, tmp_path: Path) -> None:
    first = archives.of_plugin(plugin, "1.2.3", tmp_path).read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    for jar in sorted(plugin.glob("*.jar"), reverse=True):
        (copy / jar.name).write_bytes(jar.read_bytes())
        os.utime(copy / jar.name, (1_000_000_000, 1_000_000_000))
    assert archives.of_plugin(copy, "1.2.3", tmp_path).read_bytes() == first


def test_kafkas_archive_holds_what_a_stack_runs_and_is_the_same_whenever_it_is_made(
    kafka: Path, tmp_path: Path
) -> None:
    shutil.unpack_archive(kafka, tmp_path / "unpacked")
    folder, jars = tmp_path / "unpacked" / KAFKA, parts.jars(print)
    names = {f"{place}/{jar.name}" for place in ("libs", "agent") for jar in (jars / place).iterdir()}
    assert {str(file.relative_to(folder)) for file in folder.rglob("*.*")} == names
    assert {str(file.relative_to(folder)) for file in (folder / "doc").iterdir()} == {"doc/LICENSE", "doc/NOTICE"}
    assert archives.of_kafka(folder, "1.2.3", tmp_path).read_bytes() == kafka.read_bytes()


def test_every_jar_carries_its_license_or_is_in_the_notice_which_names_no_other(
    plugin: Path, kafka: Path, tmp_path: Path
) -> None:
    named: set[str] = set()
    silent: list[str] = []
    for file in (kafka, archives.of_plugin(plugin, "1.2.3", tmp_path)):
        with zipfile.ZipFile(file) as archive:
            notice = archive.read(f"{file.stem}/doc/NOTICE").decode()
            jars = {name: BytesIO(archive.read(name)) for name in archive.namelist() if name.endswith(".jar")}
        named |= {name for names in _lists(notice).values() for name in names}
        silent += [re.split(r"-\d", Path(name).name)[0] for name, jar in jars.items() if not _has_license(jar)]
    assert len(silent) > 40
    assert [name for name in silent if not any(fnmatch(name, pattern) for pattern in named)] == []
    assert [pattern for pattern in named if not any(fnmatch(name, pattern) for name in silent)] == []


def test_the_notice_has_a_copyright_where_the_license_asks_for_one() -> None:
    notice = (ROOT / "release" / "NOTICE").read_text()
    asking = [name for license, names in _lists(notice).items() if "below" in license for name in names]
    assert sorted(re.findall(r"^([\w-]+): Copyright", notice, re.MULTILINE)) == sorted(asking)
    assert len(asking) > 5


def _lists(notice: str) -> dict[str, list[str]]:
    """License → the jars under it, by name or pattern."""
    paragraphs = notice.partition("The others:")[2].partition("-----")[0].split("\n\n")
    parts = [text.strip().rpartition(": ") for text in paragraphs if text.strip()]
    return {license: re.split(r",\s+", names) for license, _, names in parts}


def _has_license(jar: BytesIO) -> bool:
    with zipfile.ZipFile(jar) as opened:
        return any(re.fullmatch(r"(META-INF/)?LICENSE[^/]*", name) for name in opened.namelist())


@pytest.mark.nightly
def test_the_sbom_names_every_jar_of_kafkas_archive_and_is_the_same_at_every_build(kafka: Path) -> None:
    text = sbom.of_jars(kafka, "1.2.3").read_text()
    assert sbom.of_jars(kafka, "1.2.3").read_text() == text
    components = json.loads(text)["components"]
    with zipfile.ZipFile(kafka) as opened:
        jars = {Path(name).name for name in opened.namelist() if name.endswith(".jar")}
    assert {f"{one['name']}-{one['version']}.jar" for one in components} == jars


@pytest.mark.nightly
def test_two_builds_of_the_plugin_have_the_same_bytes(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is built in a separate cache, from the jars that Maven keeps."""
    monkeypatch.setenv("TOWPATH_CACHE", str(tmp_path / "cache"))
    again = parts.plugins(print) / "towpath"
    assert again != plugin
    files = [archives.of_plugin(folder, "1.2.3", tmp_path).read_bytes() for folder in (plugin, again)]
    assert files[0] == files[1]


def test_checksums_are_those_that_sha256sum_finds(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"a")
    (tmp_path / "b.whl").write_bytes(b"b")
    sums = checksums(tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", sums.name], cwd=tmp_path, check=True)
    assert len(sums.read_text().splitlines()) == 2


@pytest.mark.nightly
def test_a_release_is_whole_and_its_sboms_name_what_is_in_it() -> None:
    subprocess.run([ROOT / "scripts" / "release"], check=True)
    dist = ROOT / "dist"
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    ends = (
        "towpath-*.whl",
        "towpath_verifier-*.whl",
        "towpath-mongodb-*.zip",
        "towpath-kafka-*.zip",
        "*-constraints.txt",
    )
    (wheel,), (verifier,), (archive,), (kafka,), (constraints,) = (dist.glob(end) for end in ends)
    assert kafka.with_suffix(".cdx.json").exists()
    for one in (wheel, verifier):
        assert (dist / f"{one.name.removesuffix('-py3-none-any.whl')}.tar.gz").exists()
    pinned = constraints.read_text().splitlines()
    assert {"click", "pymongo", "dnspython"} <= {line.partition("==")[0] for line in pinned}
    python = json.loads((dist / f"{constraints.name.removesuffix('-constraints.txt')}.cdx.json").read_text())
    assert {f"{one['name']}=={one['version']}" for one in python["components"]} == set(pinned)
    java = json.loads((dist / f"{archive.stem}.cdx.json").read_text())
    with zipfile.ZipFile(archive) as opened:
        jars = {Path(name).name for name in opened.namelist() if name.endswith(".jar")}
    listed = {f"{one['name']}-{one['version']}.jar" for one in java["components"]}
    assert jars - listed == {"mongo-kafka-connect-services.jar"}
    assert listed <= jars
    assert all(one["hashes"] and one["purl"].startswith("pkg:maven/") for one in java["components"])
