"""`python -m release.images` pins the images that Dockerfile and docker-compose.yml start from to their digests.

It asks the registries, through Docker, what the tags stand for now. A tag can be moved; a digest is the image.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (ROOT / "Dockerfile", ROOT / "docker-compose.yml")
_DIGEST = r"@sha256:[0-9a-f]{64}"
#: A default of a build argument or a variable, with a tag; images that are built here have none.
_IMAGE = re.compile(rf"(^ARG \w+_IMAGE=|\w+_IMAGE:-)([\w./-]+:[\w.-]+)({_DIGEST})?", re.MULTILINE)


def pinned(text: str, digest: Callable[[str], str]) -> str:
    """The text with the digest of each image behind its tag; `digest` is called with `name:tag`."""
    return _IMAGE.sub(lambda found: found[1] + found[2] + digest(found[2]), text)


def unpinned(text: str) -> list[str]:
    """The images that have a tag and no digest."""
    return [found[2] for found in _IMAGE.finditer(text) if not found[3]]


def refuse_unpinned(version: str, changelog: str, files: Iterable[Path] = FILES) -> None:
    """Exit if the changelog has this version, so that it is a release, and an image of the files has no digest."""
    images = {image for file in files for image in unpinned(file.read_text(encoding="utf-8"))}
    if images and f"\n## [{version}]" in changelog:
        raise SystemExit(
            f"CHANGELOG.md has the version {version}, and these images have tags without digests:"
            f" {', '.join(sorted(images))}; run `python -m release.images`"
        )


def ask(image: str) -> str:
    """The digest of an image, as `@sha256:…`, of all its platforms. Exits when Docker has no answer."""
    subprocess.run(["docker", "pull", "--quiet", image], check=True, stdout=sys.stderr)
    format = '{{join .RepoDigests "\\n"}}'
    words = ["docker", "image", "inspect", "--format", format, image]
    answer = subprocess.run(words, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    found = re.search(rf"^\S*{re.escape(image.partition(':')[0])}({_DIGEST})$", answer, re.MULTILINE)
    if found is None:
        raise SystemExit(f"Docker names no digest of {image}: {answer.strip() or 'nothing'}")
    return found[1]


if __name__ == "__main__":
    for file in FILES:
        file.write_text(pinned(file.read_text(encoding="utf-8"), ask), encoding="utf-8")
