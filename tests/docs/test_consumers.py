"""The readers of `docs/concepts/consumers.md`, run as they stand there, print what the collection holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakePipeline
from tests.support.page import commands
from tests.support.pipeline import Pipeline, Settings, towpath
from towpath.stack import tools
from towpath.stack.parts import parts

pytestmark = pytest.mark.servers

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "concepts" / "consumers.md").read_text()


def code(page: str, language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)
    return str(found)


def write(folder: Path) -> None:
    """The programs, and the folders of the archives of a release, as the tutorial unpacks them."""
    (folder / "update.py").write_text(code((DOCS / "design" / "record.md").read_text(), "python"))
    (folder / "follow.py").write_text(code(PAGE, "python"))
    (folder / "FollowLog.java").write_text(code(PAGE, "java"))
    found = parts(print)
    for jars, place in ((found.libs, "kafka/towpath-kafka-1/libs"), (found.plugins / "towpath", "plugins/one-1/lib")):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).symlink_to(jars)


def printed(program: str, pipeline: Pipeline, folder: Path) -> dict[int, object]:
    """What the page's command of this program prints for the collection."""
    (command,) = (command.text for command in commands(PAGE) if command.text.startswith(program))
    shown = "127.0.0.1:9092 shop.shop.orders"
    assert shown in command
    path = f"{Path(sys.executable).parent}:{Path(tools.java()).parent}:{os.environ['PATH']}"
    command = command.replace(shown, f"{pipeline.addresses.bootstrap} {pipeline.topic('orders')}")
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {document["_id"]: document for document in map(json.loads, done.stdout.splitlines())}


@pytest.mark.nightly
def test_both_readers_print_the_documents_of_the_collection(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    write(tmp_path)
    pipeline = make_pipeline(Settings(kafka={"max_record": "1MiB"}))
    orders = pipeline.source("orders")
    orders.insert_many([{"_id": n, "total": n, "lines": [{"n": m} for m in range(50)]} for n in range(40)])
    pipeline.deploy()
    pipeline.wait()
    for n in range(0, 40, 2):
        orders.update_one({"_id": n}, {"$push": {"lines": {"$each": [{"n": n}], "$slice": -50}}})
        orders.update_one({"_id": n}, {"$push": {"lines": {"$each": [{"n": -n}], "$slice": -50}}})
        orders.update_one({"_id": n}, {"$set": {"total": None, "lines.3.n": "x", "new.deep": [1]}})
        orders.update_one({"_id": n}, {"$push": {"new.deep": 2}, "$unset": {"total": ""}})
        orders.update_one({"_id": n + 1}, [{"$set": {"lines": {"$slice": ["$lines", 7]}}}])
    orders.delete_many({"_id": {"$in": [5, 6]}})
    orders.replace_one({"_id": 7}, {"_id": 7, "now": "whole"})
    orders.insert_one({"_id": 99, "large": os.urandom(2 << 20).hex()})
    orders.update_one({"_id": 99}, {"$set": {"larger": os.urandom(1 << 20).hex()}})
    pipeline.wait()
    records = towpath(
        "tail", pipeline.file, pipeline.namespace("orders"), "--from-beginning", "--no-follow", "--json"
    ).stdout
    assert records.count("$splice") > 10
    stored = {document["_id"]: document for document in orders.find()}
    assert len(stored) == 39
    assert records.count("$chunks") == 2
    assert printed("python", pipeline, tmp_path) == stored
    assert printed("java", pipeline, tmp_path) == stored
