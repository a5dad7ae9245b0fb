"""Where bugs and security problems are reported: the URLs of pyproject.toml, which a release fills in."""

from __future__ import annotations

import tomllib

from release.archives import ROOT

_PLACEHOLDER = ".example"


def refuse_placeholders(version: str, changelog: str, project: str | None = None) -> None:
    """Exit if the changelog has this version, so that it is a release, and a URL of pyproject.toml is a placeholder."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8") if project is None else project
    names = [name for name, url in tomllib.loads(text)["project"]["urls"].items() if _PLACEHOLDER in url]
    if names and f"\n## [{version}]" in changelog:
        raise SystemExit(
            f"CHANGELOG.md has the version {version}, and these URLs in pyproject.toml are placeholders:"
            f" {', '.join(names)}; docs/releasing.md says what to fill in"
        )
