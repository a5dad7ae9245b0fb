"""Rules of the pipeline file: what is refused, how MongoSource gets them, and what of them has changed."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bson import encode, json_util

from tests.support.pipeline import pipeline_text
from towpath.checks import field_rules as judged
from towpath.checks import source
from towpath.config import loading
from towpath.config.pipeline import FILTER_JSON, Pipeline
from towpath.cutover.reverse_pipeline import reverse_file_text
from towpath.errors import BadPipelineFile, Refused
from towpath.log import field_rules
from towpath.log.definitions import RULES, RULES_KEY, definitions
from towpath.run.doctor import Redaction
from towpath.store.credentials import properties
from towpath.verify.verdict import _selection
from towpath_verifier import key_id

KEY = "0123456789abcdef"


def rule(lines: str, collections: str = "shop.users") -> str:
    return f'\n[[collections.rules]]\ncollections = "{collections}"\n{lines}\n'


def written(folder: Path, *rules: str, key: str | None = KEY, head: str = "") -> Path:
    if key is not None:
        (folder / "hash.key").write_text(key)
        (folder / "hash.key").chmod(0o600)
        head += 'hash_key_file = "hash.key"\n'
    text = pipeline_text("mongodb://a:1/?replicaSet=a", "mongodb://b:1/?replicaSet=b", more="".join(rules))
    file = folder / "shop.toml"
    file.write_text(text.replace("[collections]\n", f"[collections]\n{head}"))
    file.chmod(0o600)
    return file


def read(folder: Path, *rules: str, key: str | None = None, head: str = "") -> Pipeline:
    return loading.read(written(folder, *rules, key=key, head=head))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "does nothing"),
        ("drop = ['']", "not a path"),
        ("drop = ['a..b']", "not a path"),
        ("drop = ['cards.0.number']", "numbers are skipped"),
        ("drop = ['_id']", "an _id always leaves as it is"),
        ("drop = ['_id.a']", "an _id always leaves as it is"),
        ("drop = ['a', 'a']", "names a twice"),
        ("drop = ['a']\nset = { a = 1 }", "names a twice"),
        ("set = { a = nan }", "cannot be set"),
        ("set = { a = 9223372036854775808 }", "cannot be set"),
        ("set = { a = [1] }", "cannot be set"),
        ("hash = { a = 'md5' }", "hmac"),
        ("hash = { a.b = 'hmac' }", "in quotes"),
        ("set = { a.b = 'x' }", "in quotes"),
        ("set = { '$oid' = 'x' }", "hash or drop a field"),
        ("hash = { a = 'hmac' }", "hash_key_file"),
        ("drop = ['a']\nkeep = ['b']", "unknown key"),
        ("only = '{}'", "is not a filter"),
        ("only = '[1]'", "is not a filter"),
        ("only = 'region = eu'", "is not a filter"),
        ("only = { region = 'eu' }", "is not a filter"),
        ("""only = '{"a": 1, "a": 2}'""", "occurs twice"),
        ("""only = '{"a": 1e400, "b": 99999999999999999999}'""", "is not a filter"),
        ("""only = '{"place": {"$geoNear": [1, 2]}}'""", r"\$geoNear cannot be"),
        ("""only = '{"a": {"$regex": "x", "$ne": "xy"}}'""", r"\$regex beside \$ne"),
        ("""only = '{"$or": [{"$where": "true"}]}'""", r"\$where cannot be"),
        ("""only = '{"$expr": {"$lt": ["$day", "$$NOW"]}}'""", r"\$\$NOW cannot be"),
    ],
)
def test_what_a_rule_cannot_be(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(BadPipelineFile, match=words):
        read(tmp_path, rule(lines))


def test_rules_for_one_collection_agree(tmp_path: Path) -> None:
    with pytest.raises(BadPipelineFile, match=r"shop\.u\* and for \*\.users"):
        read(tmp_path, rule("drop = ['a']", "shop.u*"), rule("set = { a = 1 }", "*.users"))
    assert read(tmp_path, rule("drop = ['a']", "shop.u*"), rule("drop = ['a']", "*.users")).collections.rules
    assert read(tmp_path, rule("drop = ['a']", "shop.u"), rule("set = { a = 1 }", "shop.v")).collections.rules


@pytest.mark.parametrize(
    ("key", "words"),
    [("short", "at least 16"), ("x" * 16, "of no use"), (None, "cannot read")],
)
def test_the_key_of_hashes(tmp_path: Path, key: str | None, words: str) -> None:
    hashes = rule("hash = { a = 'hmac' }") if key != "x" * 16 else rule("drop = ['a']")
    head = 'hash_key_file = "hash.key"\n' if key is None else ""
    with pytest.raises(BadPipelineFile, match=words):
        read(tmp_path, hashes, key=key, head=head)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, rule("hash = { a = 'hmac' }"))
    (tmp_path / "hash.key").chmod(0o644)
    with pytest.raises(BadPipelineFile, match="can be read by others"):
        loading.read(file)


def test_rules_need_mongosource(tmp_path: Path) -> None:
    file = written(tmp_path, rule("drop = ['a']"), key=None)
    file.write_text(file.read_text().replace('name = "shop"\n', 'name = "shop"\nmode = "plain"\n'))
    with pytest.raises(BadPipelineFile, match="only MongoSource applies them"):
        loading.read(file)


ALL = rule('drop = ["ssn"]\nhash = { email = "hmac" }\nset = { a = 5, b = 5000000000, c = 0.5, d = true, e = "x" }')


def test_the_source_gets_rules_and_a_reference_to_the_key(tmp_path: Path) -> None:
    pipeline = read(tmp_path, ALL, key=f" {KEY}\n")
    source = definitions(pipeline)["shop-source"]
    (only,) = json.loads(source[RULES])
    assert only == {
        "collections": only["collections"],
        "drop": ["ssn"],
        "hash": ["email"],
        "set": {
            "a": {"$numberInt": "5"},
            "b": {"$numberLong": "5000000000"},
            "c": {"$numberDouble": "0.5"},
            "d": True,
            "e": "x",
        },
    }
    assert source[RULES_KEY].startswith("${file:") and KEY not in repr(pipeline) + str(definitions(pipeline))
    assert f"\nrules.key={KEY.encode().hex()}\n" in properties(pipeline, "a", "b")
    plain = definitions(read(tmp_path))["shop-source"]
    assert not {RULES, RULES_KEY} & plain.keys()


def test_pairs_have_the_masks_of_their_rules(tmp_path: Path) -> None:
    pipeline = read(tmp_path, ALL, rule("drop = ['x']", "shop.*"), key=KEY)
    users, orders = (field_rules.mask_of(pipeline, name) for name in ("shop.users", "shop.orders"))
    assert users and sorted(users.drop) == ["ssn", "x"] and users.set["a"] == 5 and users.key == KEY.encode()
    assert orders and orders.drop == ("x",) and not orders.hash
    assert field_rules.pair_of(read(tmp_path), "shop.users").mask is None


FILTERS = (
    '{"region": "eu", "deleted": {"$ne": true}}',
    '{"a": {"$type": 2}, "b": {"$in": [{"$numberLong": "5"}, 5, 5.5, {"$oid": "0123456789abcdef01234567"}]}}',
    '{"at": {"$gte": {"$date": "2024-01-01T00:00:00Z"}}, "u": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}}',
    '{"s": {"$regex": "^x", "$options": "i"}, "t": "$$NOW"}',
)


@pytest.mark.parametrize("text", FILTERS)
def test_the_source_gets_filters_as_they_were_meant(tmp_path: Path, text: str) -> None:
    pipeline = read(tmp_path, rule(f"only = '{text}'"), rule("""only = '{"n": 1}'""", "shop.*"))
    configured = json_util.loads(definitions(pipeline)["shop-source"][RULES], json_options=FILTER_JSON)
    mine = field_rules.only_of(pipeline, "shop.users")
    assert mine is not None and mine["$and"] == [it["only"] for it in configured]
    pair = field_rules.pair_of(pipeline, "shop.orders")
    assert (pair.mask, pair.only, pair.is_whole) == (None, {"$and": [{"n": 1}]}, False)
    assert not field_rules.differ(pipeline, stored(pipeline))
    assert field_rules.changed(pipeline, stored(pipeline), ["shop.users", "shop.orders"]) == []
    assert field_rules.changed(read(tmp_path), stored(pipeline), ["shop.users", "crm.x"]) == ["shop.users"]


def test_filters_with_other_types_or_another_order_are_others(tmp_path: Path) -> None:
    texts = ('{"a": {"x": 1, "y": 2}}', '{"a": {"y": 2, "x": 1}}', '{"a": {"x": {"$numberLong": "1"}, "y": 2}}')
    pipelines = [read(tmp_path, rule(f"only = '{text}'")) for text in texts]
    for one, other in combinations(pipelines, 2):
        assert field_rules.changed(one, stored(other), ["shop.users"]) == ["shop.users"]
        assert field_rules.differ(one, stored(other)) and _selection(one) != _selection(other)


def stored(pipeline: Pipeline) -> str:
    """As MongoSource writes it."""
    key = pipeline.collections.hash_key
    return json.dumps({"key": key_id(key) if key else "", "rules": json.loads(field_rules.as_json(pipeline) or "[]")})


def test_collections_of_which_other_rules_leave_something_else(tmp_path: Path) -> None:
    names = ["shop.users", "shop.orders"]
    before = read(tmp_path, ALL, key=KEY)
    assert field_rules.changed(before, stored(before), names) == [] and not field_rules.differ(before, stored(before))
    other_key = read(tmp_path, ALL, key=KEY + "x")
    assert field_rules.changed(other_key, stored(before), names) == ["shop.users"]
    assert field_rules.changed(read(tmp_path), stored(before), names) == ["shop.users"]
    assert field_rules.changed(before, "", names) == ["shop.users"] and field_rules.differ(before, "")
    split = read(tmp_path, rule("drop = ['b']"), rule("drop = ['a']", "shop.*"))
    wide = read(tmp_path, rule("drop = ['a', 'b']", "shop.*"))
    assert field_rules.changed(split, stored(wide), names) == ["shop.orders"]
    assert field_rules.differ(
        read(tmp_path, rule("set = { a = true }")), stored(read(tmp_path, rule("set = { a = 1 }")))
    )
    assert not field_rules.differ(read(tmp_path), "")


def test_a_pipeline_with_rules_has_no_reverse_pipeline(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has rules, so there can be no reverse pipeline"):
        reverse_file_text(written(tmp_path, rule("drop = ['a']"), key=None))


@pytest.mark.parametrize("pattern", ["shop.usres", "crm.*"])
def test_a_rule_that_matches_nothing_is_an_error(tmp_path: Path, pattern: str) -> None:
    """Or what it names would leave the source."""
    pipeline = read(tmp_path, rule("drop = ['a']", "*.users"), rule("drop = ['a']", pattern))
    facts: Any = SimpleNamespace(pipeline=pipeline, allow_missing=False, namespaces=("shop.users",))
    (found,) = source.included(facts)
    assert found.level == "error" and f"{pattern!r} match no collection" in found.finding
    facts.allow_missing = True
    assert list(source.included(facts)) == []


def test_a_constant_is_no_reference_that_connect_resolves(tmp_path: Path) -> None:
    constant = "${file:/secrets:source.uri}"
    text = field_rules.as_json(read(tmp_path, rule(f'set = {{ a = "{constant}" }}')))
    assert "${" not in text and json.loads(text)[0]["set"] == {"a": constant}


def test_the_archive_for_a_bug_report_does_not_hold_the_key(tmp_path: Path) -> None:
    redacted = Redaction.of(read(tmp_path, ALL, key=KEY))
    assert KEY not in redacted(f"key: {KEY}") and KEY.encode().hex() not in redacted(KEY.encode().hex())


def test_a_verdict_is_of_its_rules(tmp_path: Path) -> None:
    selections = [_selection(read(tmp_path, ALL, key=key)) for key in (KEY, KEY + "x")]
    selections += [_selection(read(tmp_path)), _selection(read(tmp_path, rule("drop = ['a']")))]
    assert len({repr(it) for it in selections}) == 4 and KEY not in repr(selections)


def test_what_else_needs_the_values(tmp_path: Path) -> None:
    rules = read(tmp_path, rule('drop = ["a.b"]\nset = { c = 1 }\nhash = { d = "hmac" }'), key=KEY).collections.rules

    def index(path: str, **options: object) -> list[str]:
        return [it.finding for it in judged.of_indexes(rules, [{"name": "x", "key": {path: 1}, **options}])]

    assert index("a.b") == index("e", unique=True) == index("d", unique=True) == index("ab", unique=True) == []
    for path in ("a.b", "a", "a.0.b", "a.b.c", "c"):
        assert len(index(path, unique=True)) == 1, path
    assert len(index("d", expireAfterSeconds=5)) == 1 and not index("e", expireAfterSeconds=5)
    validator = {"$jsonSchema": {"required": ["c"], "properties": {"a": {"properties": {"b": {}}}}}}
    assert len(list(judged.of_validator(rules, validator))) == 2
    assert not list(judged.of_validator(rules, {"e": {"$gt": 5}}))


def test_paths_that_occur_in_no_document(tmp_path: Path) -> None:
    rules = read(tmp_path, rule('drop = ["a.b", "c"]')).collections.rules
    occurrences = judged.Occurrences(rules)
    assert list(occurrences.findings()) == []
    occurrences.see(encode({"a": [{"b": 1}]}))
    assert [it.finding for it in occurrences.findings()] == ["has no field c in a sample, and a rule names it"]
