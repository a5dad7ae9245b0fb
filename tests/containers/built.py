"""The images that Dockerfile and docker-compose.yml start from, or their stand-ins, and what is built on them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def mongo() -> str:
    """The image of both replica sets."""
    if found := _stand_ins():
        return str(found["services"]["source"]["image"])
    (image,) = re.findall(r"TOWPATH_MONGO_IMAGE:-(.+)}", (ROOT / "docker-compose.yml").read_text())
    return str(image)


def bases() -> dict[str, str]:
    """Dockerfile's build arguments: the images that it starts from."""
    declared = dict(re.findall(r"^ARG (\w+)=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    return declared | (_stand_ins().get("x-built", {}).get("args", {}))


def build(target: str, image: str, **arguments: str) -> str:
    """Build a target of Dockerfile, with other build arguments if given; returns the name of the image."""
    options = [f"--build-arg={key}={value}" for key, value in (bases() | arguments).items()]
    words = ["docker", "build", "--network=host", f"--target={target}", f"--tag={image}", *options, "."]
    subprocess.run(words, cwd=ROOT, check=True)
    return image


def _stand_ins() -> dict[str, Any]:
    """What stand-ins.yaml says, if COMPOSE_FILE names it."""
    file = ROOT / "tests" / "containers" / "images" / "stand-ins.yaml"
    in_use = file.name in os.environ.get("COMPOSE_FILE", "")
    return yaml.safe_load(file.read_text()) if in_use else {}
