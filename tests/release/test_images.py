"""Images are pinned to what their tags stood for at a release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from release import images

DIGEST = "@sha256:" + "0a" * 32


def test_every_image_of_others_gets_a_digest_and_those_that_are_built_here_none() -> None:
    asked: list[str] = []
    texts = [file.read_text(encoding="utf-8") for file in images.FILES]
    done = [images.pinned(text, lambda image: (asked.append(image), DIGEST)[1]) for text in texts]
    names = {image.partition(":")[0] for image in asked}
    assert names == {"python", "apache/kafka", "strimzi/kafka", "mongo", "prom/prometheus", "grafana/grafana"}
    built = {"towpath", "towpath-connect"}
    named = set(re.findall(r"(?:_IMAGE=|_IMAGE:-)([^}\s]+)", "\n".join(done)))
    assert {name for name in named if not name.endswith(DIGEST)} == built
    assert [images.pinned(text, lambda image: DIGEST) for text in done] == done, "those of before are replaced"


def test_no_tag_floats() -> None:
    for text in (file.read_text(encoding="utf-8") for file in images.FILES):
        images.pinned(text, lambda image: _digit(image.partition(":")[2]))


def _digit(tag: str) -> str:
    assert re.search(r"\d+\.\d+\.\d+", tag), tag
    return ""


@pytest.mark.parametrize(
    ("answer", "found"),
    [(f"docker.io/prom/prometheus{DIGEST}", DIGEST), ("", None), (f"another/image{DIGEST}", None)],
)
def test_the_digest_is_that_of_the_image(
    answer: str, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n[ $1 = pull ] || echo '{answer}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if found:
        assert images.ask("prom/prometheus:v2.42.0") == found
    else:
        with pytest.raises(SystemExit, match=re.escape("no digest of prom/prometheus:v2.42.0")):
            images.ask("prom/prometheus:v2.42.0")
