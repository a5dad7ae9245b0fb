"""Software bills of materials, in CycloneDX: what the tool needs from PyPI, and what the archives contain."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.archives import ROOT

#: The Maven groups of jars that do not carry their POM, by the beginning of their names.
_GROUPS = {
    "activation": "javax.activation",
    "bson": "org.mongodb",
    "caffeine": "com.github.ben-manes.caffeine",
    "connect-": "org.apache.kafka",
    "hash4j": "com.dynatrace.hash4j",
    "jspecify": "org.jspecify",
    "kafka": "org.apache.kafka",
    "mongo-kafka-": "org.mongodb.kafka",
    "mongodb-driver-": "org.mongodb",
    "pcollections": "org.pcollections",
    "re2j": "com.google.re2j",
    "scala-logging": "com.typesafe.scala-logging",
    "scala-": "org.scala-lang",
    "sketches-java": "com.datadoghq",
    "snappy-java": "org.xerial.snappy",
    "zstd-jni": "com.github.luben",
}
_JAR = re.compile(r"(.+?)-(\d[\w.\-]*)\.jar")
#: Only Towpath's: a list of service files.
_OWN = "mongo-kafka-connect-services.jar"


def installed() -> list[str]:
    """`name==version` of everything that `pip install towpath` installed here, without Towpath."""
    found: dict[str, str] = {}
    pending = [("towpath", "")]
    while pending:
        package, extra = pending.pop()
        for text in metadata.requires(package) or ():
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
                continue
            found[name] = metadata.version(name)
            pending += [(name, wanted) for wanted in ("", *requirement.extras)]
    return sorted(f"{name}=={version}" for name, version in found.items())


def of_python(constraints: Path, file: Path) -> Path:
    """Write the SBOM of the wheel with these versions."""
    command: list[str | Path] = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", constraints]
    command += ["--output-file", file, "--pyproject", ROOT / "pyproject.toml", "--output-reproducible"]
    subprocess.run(command, check=True)
    return file


def of_jars(archive: Path, version: str) -> Path:
    """Write the SBOM of an archive next to it: every jar with its SHA-256. Raises `ValueError` for an unknown jar."""
    bom = Bom()
    # as cyclonedx_py does with --output-reproducible: the same archive has the same SBOM
    bom.serial_number = None  # type: ignore[assignment]
    bom.metadata.timestamp = None  # type: ignore[assignment]
    name, file = archive.stem.removesuffix(f"-{version}"), archive.with_suffix(".cdx.json")
    bom.metadata.component = Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref=name)
    with zipfile.ZipFile(archive) as opened:
        jars = [name for name in opened.namelist() if name.endswith(".jar") and not name.endswith(f"/{_OWN}")]
        for jar in jars:
            bom.components.add(_component(jar.rpartition("/")[2], opened.read(jar)))
    bom.register_dependency(bom.metadata.component, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    from cyclonedx.validation.json import JsonStrictValidator  # it makes parsers for a second

    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the SBOM of {archive.name} is not valid CycloneDX: {fault}")
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _component(jar: str, content: bytes) -> Component:
    match = _JAR.fullmatch(jar)
    if match is None:
        raise ValueError(f"{jar} has no version in its name")
    name, version = match.groups()
    group = _group(jar, content)
    return Component(
        type=ComponentType.LIBRARY,
        group=group,
        name=name,
        version=version,
        purl=PackageURL("maven", group, name, version),
        bom_ref=f"{group}:{name}:{version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())],
    )


def _group(jar: str, content: bytes) -> str:
    """The Maven group: of the jar's own POM, the shallowest that it carries, else by its name."""
    with zipfile.ZipFile(BytesIO(content)) as opened:
        poms = [name.split("/") for name in opened.namelist() if name.endswith("/pom.properties")]
    names = {pom[-2]: pom[-3] for pom in poms}  # META-INF/maven/GROUP/NAME/pom.properties
    for name, group in names.items():
        if jar.startswith(f"{name}-"):
            return group
    for beginning, group in _GROUPS.items():
        if jar.startswith(beginning):
            return group
    raise ValueError(f"the Maven group of {jar} is not known: add it to release/sbom.py")
