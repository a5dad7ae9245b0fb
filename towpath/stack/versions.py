"""The versions of all parts, read from `versions/pom.xml`, the one place that names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from towpath.stack.errors import PartUnavailable

VERSIONS_POM = Path(__file__).parent / "versions" / "pom.xml"
_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"
_PROPERTY = re.compile(r"\$\{([\w.-]+)}")


def properties(pom: Path) -> Mapping[str, str]:
    """The properties of a Maven POM, name → text. Raises `PartUnavailable` when the file cannot be read as one."""
    try:
        found = ElementTree.parse(pom).getroot().find(f"{_NAMESPACE}properties")
    except (OSError, ElementTree.ParseError) as error:
        raise PartUnavailable(f"cannot read the versions of the stack's parts from {pom}: {error}") from error
    if found is None:
        raise PartUnavailable(f"{pom} names no versions: it has no <properties>")
    return {item.tag.removeprefix(_NAMESPACE): (item.text or "").strip() for item in found if isinstance(item.tag, str)}


@cache
def versions() -> Mapping[str, str]:
    """The pinned versions, such as `kafka.version` → `4.3.1`."""
    return properties(VERSIONS_POM)


def version(name: str) -> str:
    """One pinned version. Raises `PartUnavailable` when `versions/pom.xml` does not name it."""
    try:
        return versions()[name]
    except KeyError:
        raise PartUnavailable(f"{VERSIONS_POM} does not name <{name}>") from None


def resolved(text: str) -> str:
    """The text with every `${property}` of `versions/pom.xml` replaced; other `${…}` stay."""
    return _PROPERTY.sub(lambda match: versions().get(match[1], match[0]), text)
