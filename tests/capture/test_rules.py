"""What rules leave of documents and changes is the same on both sides, and nothing else leaves the source."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import MakePipeline
from tests.support import control, raw, workers
from tests.support.awaited import until
from tests.support.page import commands, differs
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.workload import Workload
from towpath import stack as embedded
from towpath.clients.connect.rest import Connect
from towpath_verifier import Mask, id_key

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
KEY = "a key that has at least thirty-two characters"
#: Fields of the workload: numbers, texts, arrays, arrays of documents, objects with names that are numbers.
PATHS = ("n0", "s0", "l0", "l1", "d0", "d0.v", "d1.k", "d1.w", "a0.text", "a0.v", "o0", "o1.a", "o1.b.k", "o2.z", "x0")


def settings(folder: Path, *rules: dict[str, Any]) -> Settings:
    """Of a pipeline with these rules."""
    key = folder / "hash.key"
    key.write_text(KEY)
    key.chmod(0o600)
    lines = [
        line
        for rule in rules
        for line in ("[[collections.rules]]", *(f"{name} = {_toml(value)}" for name, value in rule.items()))
    ]
    hashes = any("hash" in rule for rule in rules)
    return Settings(collections={"hash_key_file": str(key)} if hashes else {}, extra="\n".join(lines))


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{ " + ", ".join(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items()) + " }"


def mask(rule: dict[str, Any]) -> Mask:
    return Mask(rule.get("drop", ()), rule.get("hash", ()), rule.get("set", {}), KEY.encode())


#: Of the workload's documents, each matches some.
FILTERS: tuple[dict[str, Any], ...] = (
    {"n1": {"$gte": 0}},
    {"s1": {"$exists": True}, "n0": {"$type": "number"}},
    {"l0.1": {"$exists": True}},
    {"a0.v": {"$ne": None}},
    {"$or": [{"n2": {"$lt": 5}}, {"x0": {"$exists": False}}]},
    {"$expr": {"$gt": ["$n3", "$n2"]}},
)


def random_rule(random: Random) -> dict[str, Any]:
    paths = random.sample(PATHS, 9)
    constants = ("redacted", 7, 2**40, 0.5, True)
    return {
        "collections": "*.docs",
        "drop": paths[:3],
        "hash": dict.fromkeys(paths[3:6], "hmac"),
        "set": {path: random.choice(constants) for path in paths[6:]},
        "only": json.dumps(random.choice(FILTERS)),
    }


def assert_as_the_rule_leaves_it(pipeline: Pipeline, rule: dict[str, Any], collection: str, *, at_least: int) -> None:
    """Byte for byte; the rule changes some of the documents."""
    leave = mask(rule)
    before = list(raw.read(pipeline.source(collection), json.loads(rule.get("only", "{}"))))
    expected = {id_key(document): leave(document) for document in before}
    found = {id_key(document): document for document in raw.read(pipeline.destination(collection))}
    assert found == expected
    assert len(expected) >= at_least and any(leave(document) != document for document in before)


#: Turn → what is killed in it, by night.
KILLED = {3: workers.FIRST, 6: "kafka", 9: workers.FIRST}


class Secrets:
    """Texts that must not leave the source; each occurs once."""

    def __init__(self) -> None:
        self.made = 0

    def text(self) -> str:
        self.made += 1
        return f"secret-{self.made:06d}-secret"

    def document(self, number: int) -> dict[str, Any]:
        return {
            "_id": number,
            "ssn": self.text(),
            "address": {"street": self.text(), "city": "visible"},
            "cards": [self.card() for _ in range(3)],
            "email": self.text(),
            "contacts": [{"phone": self.text()}, self.text()],
            "country": self.text(),
            "log": [{"at": n, "by": self.text(), "text": "visible" * 20} for n in range(20)],
        }

    def card(self) -> dict[str, Any]:
        return {"number": self.text(), "kind": "visible"}

    def colleague(self, number: int, region: str) -> dict[str, Any]:
        """Of whom only those in the EU may leave; the ids of some never do."""
        note = "visible" if region == "eu" else self.text()
        return {"_id": number if number < 10 else self.text(), "region": region, "note": note, "ssn": self.text()}

    def updates(self) -> Iterator[Any]:
        yield {"$set": {"ssn": self.text(), "address.street": self.text(), "cards.1.number": self.text()}}
        yield {"$push": {"cards": self.card()}}
        yield {"$push": {"cards": {"$each": [self.card()], "$position": 0, "$slice": 3}}}
        yield {"$push": {"log": {"$each": [{"at": 1, "by": self.text(), "text": "visible"}], "$slice": -20}}}
        yield {"$set": {"address": {"street": self.text(), "city": "visible"}, "contacts.0.phone": self.text()}}
        yield {"$rename": {"country": "email"}}
        yield [{"$set": {"country": self.text(), "address.street": {"$concat": [self.text(), "$ssn"]}}}]
        yield [{"$set": {"cards": {"$slice": ["$cards", 1]}, "log": {"$slice": ["$log", 10]}}}]
        yield {"$unset": {"ssn": "", "cards.0.number": ""}}
        yield {"$set": {"email": {"home": self.text(), "work": [self.text()]}}}


RULE = {
    "collections": "*.people",
    "drop": ["ssn", "address.street", "cards.number"],
    "hash": {"email": "hmac", "contacts": "hmac", "log.by": "hmac"},
    "set": {"country": "redacted"},
}


SELECTION = {"collections": "*.staff", "drop": ["ssn"], "only": '{"region": "eu"}'}


def everything_in_kafka(bootstrap: str, name: str) -> bytes:
    """Keys, values and headers of all records of this pipeline's and Connect's topics, also of aborted transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "towpath-tests",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    parts: list[bytes] = []
    try:
        topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
        left = {
            (topic, number)
            for topic, described in topics.items()
            if name in topic or topic.startswith("connect")
            for number in described.partitions
        }
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in left])
        while left:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {left}"
            if message.error():
                left.discard((message.topic(), message.partition()))
                continue
            parts += [part for part in (message.key(), message.value()) if part]
            parts.append(repr(message.headers()).encode())
    finally:
        consumer.close()
    return b"\n".join(parts)


def test_random_changes_leave_what_the_rules_leave_and_no_secret_leaves_the_source(
    make_pipeline: MakePipeline, stack: embedded.Stack, tmp_path: Path, seed: int, nightly: bool
) -> None:
    random, secrets = Random(seed), Secrets()
    rule = random_rule(random)
    print(rule)
    pipeline = make_pipeline(settings(tmp_path, rule, RULE, SELECTION))
    changes, people = Workload(seed, [pipeline.source("docs")], documents=300), pipeline.source("people")
    staff = pipeline.source("staff")
    changes.fill()
    people.insert_many([secrets.document(number) for number in range(20)])
    staff.insert_many([secrets.colleague(number, "eu" if number < 5 else "us") for number in range(20)])
    pipeline.deploy()
    for turn in range(12 if nightly else 4):
        changes.run(500 if nightly else 50)
        if nightly and turn in KILLED:
            control.restart(stack.directory, KILLED[turn], signal.SIGKILL)
        for update in secrets.updates():
            people.update_one({"_id": random.randrange(20)}, update)
        number = random.randrange(20)
        people.replace_one({"_id": number}, secrets.document(number))
        staff.update_many({"region": "us"}, {"$set": {"note": secrets.text()}, "$inc": {"n": 1}})
        staff.insert_one(secrets.colleague(99, "us"))
        for number in random.sample(range(10), 3):
            staff.replace_one({"_id": number}, secrets.colleague(number, random.choice(("eu", "us"))), upsert=True)
        staff.delete_one({"_id": random.randrange(30)})
    pipeline.wait()
    assert_as_the_rule_leaves_it(pipeline, rule, "docs", at_least=20)
    assert_as_the_rule_leaves_it(pipeline, RULE, "people", at_least=20)
    staff.replace_one({"_id": 1}, secrets.colleague(1, "eu"), upsert=True)
    pipeline.wait()
    assert_as_the_rule_leaves_it(pipeline, SELECTION, "staff", at_least=1)
    towpath("verify", pipeline.file)

    pipeline.destination("docs").update_many({}, {"$set": {"n0": "damaged"}})
    pipeline.destination("people").delete_one({"_id": 3})
    pipeline.destination("staff").replace_one({"_id": 8}, {"region": "us"}, upsert=True)  # which must not be there
    staff.replace_one({"_id": 8}, secrets.colleague(8, "us"), upsert=True)
    people.update_one({"_id": 3}, {"$set": {"ssn": secrets.text(), "email": secrets.text()}})  # a dead letter
    pipeline.wait()
    said = towpath("verify", pipeline.file, "--json", expect=1).stdout
    if nightly:
        towpath("replay", pipeline.file, "--rebuild", "--yes")
        for of, collection in ((rule, "docs"), (SELECTION, "staff")):
            assert_as_the_rule_leaves_it(pipeline, of, collection, at_least=1)
    towpath("repair", pipeline.file, "--yes")
    assert_as_the_rule_leaves_it(pipeline, rule, "docs", at_least=20)
    assert_as_the_rule_leaves_it(pipeline, RULE, "people", at_least=20)
    assert_as_the_rule_leaves_it(pipeline, SELECTION, "staff", at_least=1)

    assert secrets.made >= (1_000 if nightly else 300)
    seen = everything_in_kafka(stack.bootstrap, pipeline.name)
    assert b"visible" in seen and b"redacted" in seen
    archive = tmp_path / "doctor.zip"
    towpath("doctor", pipeline.file, "--output", archive)
    with zipfile.ZipFile(archive) as packed:
        seen += b"".join(packed.read(name) for name in packed.namelist()) + said.encode()
    seen += b"".join(process.log.read_bytes() for name, process in stack.processes.items() if "source" not in name)
    assert b"secret-" not in seen and KEY.encode() not in seen and KEY.encode().hex().encode() not in seen


def _shell(folder: Path, command: str) -> str:
    """What a command of a page prints, run in the folder of its files."""
    environment = os.environ | {"PATH": f"{TOWPATH.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_the_how_to_does_what_it_shows(make_pipeline: MakePipeline) -> None:
    """Line by line; the numbers of hashes are others."""
    pipeline = make_pipeline(Settings(include=("users", "orders")))
    page = (ROOT / "docs" / "how-to" / "filtered-copy.md").read_text().replace("shop.toml", "@@")
    page = page.replace("shop.", f"{pipeline.name}.").replace("@@", pipeline.file.name)
    (toml,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    given = commands(page)
    shown = next(command for command in given if "--show" in command.text)
    pipeline.source("users").insert_one(json.loads(shown.output[0]))
    orders = {1: {"region": "eu"}, 2: {"region": "us"}, 3: {"region": "eu", "deleted": True}, 4: {}}
    pipeline.source("orders").insert_many([{"_id": n, **order} for n, order in orders.items()])
    rules = toml[toml.index("[[collections.rules]]") :]
    collections = {"include": tomllib.loads(toml)["collections"]["include"], "hash_key_file": "hash.key"}
    assert collections["include"] == [pipeline.namespace(name) for name in ("users", "orders")]
    pipeline = replace(pipeline, settings=replace(pipeline.settings, collections=collections, extra=rules))
    file = pipeline.write()

    for command in given:
        if "--accept-rules" in command.text:
            _shell(file.parent, f"towpath deploy {file.name}")
            pipeline.wait()
            assert [order["_id"] for order in pipeline.destination("orders").find()] == [1]
            file.write_text(file.read_text().replace('country = "redacted"', 'country = "hidden"'))
        printed = _shell(file.parent, command.text + (" --yes" if "resnapshot" in command.text else ""))
        if command.output:
            hidden = [re.sub("[0-9a-f]{32}", "a hash", text) for text in ("\n".join(command.output), printed)]
            assert differs(hidden[0].splitlines(), hidden[1]) is None, printed
    _shell(file.parent, f"towpath verify {file.name}")
    (user,) = pipeline.destination("users").find()
    assert user["country"] == "hidden" and "ssn" not in user and user["contacts"] == [{}]


@pytest.mark.nightly
def test_other_rules_are_accepted_and_their_documents_are_read_again(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    first = make_pipeline(settings(tmp_path, {"collections": "*.docs", "drop": ["a"]}))
    first.source("docs").insert_many([{"_id": n, "a": n, "b": n, "c": [{"d": "x"}]} for n in range(50)])
    first.source("others").insert_one({"_id": 1, "e": 1})
    first.deploy()
    first.wait()
    assert_as_the_rule_leaves_it(first, {"drop": ["a"]}, "docs", at_least=50)

    rule = {"collections": "*.docs", "drop": ["b"], "hash": {"a": "hmac"}, "set": {"c": "y"}}
    pipeline = replace(first, settings=settings(tmp_path, rule))
    refused = towpath("deploy", pipeline.write(), expect=2).stderr
    assert "--accept-rules" in refused and f"the rules have changed for {pipeline.namespace('docs')}:" in refused
    listed = towpath("rules", pipeline.file).stdout
    assert f"{pipeline.namespace('docs')}: drop b, hash a, set c" in listed
    before, after = towpath("rules", pipeline.file, "--show", pipeline.namespace("docs"), "--sample", 1).stdout.split(
        "\n"
    )[:2]
    assert (json.loads(before)["b"], json.loads(after).get("b"), json.loads(after)["c"]) == (0, None, [{"d": "y"}])

    accepted = towpath("deploy", pipeline.file, "--accept-rules").stderr
    assert f"towpath resnapshot PIPELINE --only {pipeline.namespace('docs')}" in accepted
    pipeline.source("docs").update_many({"_id": {"$lt": 10}}, {"$set": {"a": "new"}})
    pipeline.source("docs").delete_one({"_id": 49})
    with Connect(pipeline.addresses.connect) as connect:
        source = f"{pipeline.name}-source"
        until("a source task that stops", lambda: any(it.state == "FAILED" for it in connect.status(source).tasks))
    assert "TWP-RULES-CHANGED" in towpath("status", pipeline.file, expect=1).stdout
    towpath("resnapshot", pipeline.file, "--only", pipeline.namespace("docs"), "--yes")
    assert_as_the_rule_leaves_it(pipeline, rule, "docs", at_least=49)
    assert "nothing to change" in towpath("deploy", pipeline.file).stdout
    pipeline.source("docs").update_one({"_id": 3}, {"$set": {"b": 1, "c.0.d": "z"}})
    pipeline.wait()
    assert_as_the_rule_leaves_it(pipeline, rule, "docs", at_least=49)
