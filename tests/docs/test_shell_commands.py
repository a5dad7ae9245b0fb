"""The commands in the pages' blocks begin with programs that a reader has, and name what this repository has."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from tests.docs.test_documentation import PAGES, ROOT, wrong

_BLOCK = re.compile(r"^ *```(console|sh)\n(.*?)^ *```", re.M | re.S)
#: What ends a command, or begins one inside it.
_BETWEEN = re.compile(r"\|\||&&|[|;]|\$?\(")
#: The shell's own, usual tools, and those of MongoDB, Kafka, Prometheus, containers and Kubernetes.
_PROGRAMS = {
    *(
        ".",
        "alias",
        "awk",
        "cat",
        "cp",
        "curl",
        "cut",
        "echo",
        "export",
        "grep",
        "head",
        "id",
        "jq",
        "kill",
        "sort",
        "umask",
    ),
    *(
        "apt-get",
        "docker",
        "java",
        "kubectl",
        "openssl",
        "pip",
        "python",
        "python3",
        "sha256sum",
        "sha512sum",
        "systemctl",
        "unzip",
    ),
    *("kafka-acls.sh", "kafka-transactions.sh", "mongosh", "prometheus", "promtool", "towpath"),
}


def commands(page: str) -> Iterator[str]:
    """Each command of the page's blocks, from its program on; so are those behind `|`, `;`, `&&` and in `$(…)`."""
    for kind, block in _BLOCK.findall(page):
        lines = re.sub(r"(\|)\n|\\\n", r"\1 ", textwrap.dedent(block)).splitlines()
        for line in (line.removeprefix("$ ") for line in lines if kind == "sh" or line.startswith("$ ")):
            bare = re.sub(r"(^|\s)#.*|'[^']*'|\"[^\"$]*\"", " ", line).replace('"', " ")
            parts = (re.sub(r"^(\s*\w+=\S*)+", "", part).strip(" )") for part in _BETWEEN.split(bare))
            yield from (part for part in parts if part)


def unknown_programs(text: str) -> set[str]:
    programs = {command.split()[0] for command in commands(text)} - _PROGRAMS
    return {each for each in programs if not (each.startswith("scripts/") and (ROOT / each).is_file())}


def test_each_command_is_a_known_program_or_a_script_of_ours() -> None:
    assert wrong(unknown_programs) == {}


def test_the_tutorial_and_kubernetes_have_commands_inside_others() -> None:
    docs = ROOT / "docs"
    assert "awk" in {command.split()[0] for command in commands((docs / "tutorial.md").read_text())}
    assert "sha512sum" in {command.split()[0] for command in commands((docs / "how-to" / "kubernetes.md").read_text())}


def test_images_services_and_labels_of_commands_are_there() -> None:
    text = "\n".join(block for page in PAGES for _, block in _BLOCK.findall(page.read_text()))
    dockerfile, compose = ((ROOT / file).read_text() for file in ("Dockerfile", "docker-compose.yml"))
    profiles = " ".join(re.findall(r"profiles: \[(.*)\]", compose))
    for named, there in (
        (re.findall(r"--target (\w+)", text), re.findall(r"^FROM .* AS (\w+)$", dockerfile, re.M)),
        (re.findall(r"--build-arg (\w+)", text), re.findall(r"^ARG (\w+)", dockerfile, re.M)),
        (re.findall(r"--profile (\w+)", text), profiles.replace(",", " ").split()),
        (re.findall(r"compose (?:exec|run --rm) (\w+)", text), re.findall(r"^  (\w+):", compose, re.M)),
    ):
        assert set(named) <= set(there)
