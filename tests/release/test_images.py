"""Images are pinned to what their tags stood for at a release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from release import __main__ as release
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


def test_no_version_of_the_changelog_is_released_with_tags_alone(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("ARG KAFKA_IMAGE=apache/kafka:4.3.1\nARG TOWPATH_IMAGE=towpath\n", encoding="utf-8")
    released = "## [Unreleased]\n\n## [1.2.3] - 2026-11-27\n"
    with pytest.raises(SystemExit, match=r"1\.2\.3.* apache/kafka:4\.3\.1; run `python -m release\.images`"):
        images.refuse_unpinned("1.2.3", released, [file])
    images.refuse_unpinned("1.2.4", released, [file])  # a trial
    file.write_text(images.pinned(file.read_text(encoding="utf-8"), lambda image: DIGEST), encoding="utf-8")
    images.refuse_unpinned("1.2.3", released, [file])


def test_a_release_begins_with_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise SystemExit("no digests")

    monkeypatch.setattr(images, "refuse_unpinned", refuse)
    monkeypatch.setattr(release.shutil, "rmtree", lambda *_, **__: pytest.fail("dist is touched"))
    with pytest.raises(SystemExit, match="no digests"):
        release.main()


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
