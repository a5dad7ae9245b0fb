"""Builds a release into dist/: see `scripts/release` and docs/releasing.md."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from release import archives, contacts, images, sbom
from release.archives import ROOT
from towpath.stack.parts import jars, plugins


def main() -> None:
    dist, version = ROOT / "dist", metadata.version("towpath")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    images.refuse_unpinned(version, changelog)
    contacts.refuse_placeholders(version, changelog)
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    # the build tool of both pyproject.toml is installed here in the same version, so nothing is downloaded for it
    for project in (ROOT / "verifier", ROOT):
        subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, project], check=True)
    constraints = dist / f"towpath-{version}-constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in sbom.installed()), encoding="utf-8")
    sbom.of_python(constraints, dist / f"towpath-{version}.cdx.json")
    sbom.of_jars(archives.of_plugin(plugins(_progress) / "towpath", version, dist), version)
    sbom.of_jars(archives.of_kafka(jars(_progress), version, dist), version)
    sys.stdout.write(checksums(dist).read_text(encoding="utf-8"))


def _progress(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def checksums(directory: Path) -> Path:
    """Write SHA256SUMS of all files there, as `sha256sum --check` reads it."""
    files = sorted(file for file in directory.iterdir() if file.is_file())
    sums = directory / "SHA256SUMS"
    sums.write_text(
        "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files), encoding="utf-8"
    )
    return sums


if __name__ == "__main__":
    main()
