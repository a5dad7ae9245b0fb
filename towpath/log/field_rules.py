"""The rules of what may leave the source (docs/design/rules.md): as MongoSource has them, as masks through which both
sides are compared, and beside those that the log's records follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bson import json_util
from pymongo.collection import Collection

from towpath.config.pipeline import FILTER_JSON, Constant, FieldRule, Pipeline
from towpath_verifier import Mask, Namespace, Pair, by_ids, id_key, key_id


def pair_of(pipeline: Pipeline, namespace: Namespace) -> Pair:
    """A namespace of the source, and where its documents are to be as the rules leave them."""
    return Pair(namespace, pipeline.renamed(namespace), mask_of(pipeline, namespace), only_of(pipeline, namespace))


def only_of(pipeline: Pipeline, namespace: Namespace) -> Mapping[str, Any] | None:
    """The filter that decides which documents of a collection leave; None if all do."""
    filters = [rule.only for rule in rules_for(pipeline, namespace) if rule.only is not None]
    return {"$and": filters} if filters else None


def selected(
    collection: Collection[Any], documents: Sequence[bytes], only: Mapping[str, Any] | None
) -> Sequence[bytes]:
    """Those of these documents that leave. The server decides, by what they are now."""
    if only is None or not documents:
        return documents
    leaving = {key for key, _ in by_ids(collection, documents, only=only)}
    return [document for document in documents if id_key(document) in leaving]


def filter_text(only: Mapping[str, Any]) -> str:
    """A filter for people."""
    filters = [json_util.dumps(each, json_options=json_util.RELAXED_JSON_OPTIONS) for each in only["$and"]]
    return " and ".join(filters)


def mask_of(pipeline: Pipeline, namespace: Namespace) -> Mask | None:
    """What the rules leave of the fields of a collection's documents; None if that is all of them."""
    rules = [rule for rule in rules_for(pipeline, namespace) if rule.actions]
    if not rules:
        return None
    return Mask(
        tuple(path for rule in rules for path in rule.drop),
        tuple(path for rule in rules for path in rule.hash),
        {path: value for rule in rules for path, value in rule.set.items()},
        pipeline.collections.hash_key,
    )


def rules_for(pipeline: Pipeline, namespace: Namespace) -> Iterator[FieldRule]:
    """The rules that match a collection."""
    for rule in pipeline.collections.rules:
        if rule.selection.matches(namespace):
            yield rule


def as_json(pipeline: Pipeline) -> str:
    """The rules in the form of MongoSource's setting; empty for none."""
    rules = [
        {
            "collections": rule.selection.namespace_regex,
            "drop": list(rule.drop),
            "hash": list(rule.hash),
            "set": {path: _extended(value) for path, value in rule.set.items()},
            **({} if rule.only is None else {"only": json.loads(json_util.dumps(rule.only, json_options=FILTER_JSON))}),
        }
        for rule in pipeline.collections.rules
    ]
    # Connect replaces ${file:…} in a setting by what the file holds
    return json.dumps(rules, ensure_ascii=False).replace("${", "\\u0024{") if rules else ""


def _extended(constant: Constant) -> Any:
    """As canonical Extended JSON."""
    if isinstance(constant, bool | str):
        return constant
    if isinstance(constant, float):
        return {"$numberDouble": repr(constant)}
    return {"$numberInt" if -(2**31) <= constant < 2**31 else "$numberLong": str(constant)}


def identity(pipeline: Pipeline) -> str:
    """The same text for the same rules with the same key, which it does not hold."""
    return _text(_rules(pipeline))


def changed(pipeline: Pipeline, followed: str, namespaces: Iterable[Namespace]) -> list[Namespace]:
    """Those of these collections of which the pipeline's rules leave something else than those that the log follows.

    `followed` is the text in the source connector's offsets; empty for none. `Rules.leaveTheSame` is the same in Java.
    """
    now, before = (_Rules(*rules) for rules in (_rules(pipeline), _stored(followed)))
    return [namespace for namespace in namespaces if now.effect(namespace) != before.effect(namespace)]


def _rules(pipeline: Pipeline) -> tuple[Any, str]:
    """The rules, and an id of the key."""
    key = pipeline.collections.hash_key
    return _parsed(as_json(pipeline) or "[]"), key_id(key) if key else ""


def _stored(followed: str) -> tuple[Any, str]:
    stored = _parsed(followed or '{"rules": [], "key": ""}')
    return stored["rules"], stored["key"]


def _parsed(text: str) -> Any:
    return json_util.loads(text, json_options=FILTER_JSON)


def differ(pipeline: Pipeline, followed: str) -> bool:
    """Whether the pipeline's rules are others than those that the log follows, in words or in effect."""
    return identity(pipeline) != _text(_stored(followed))


def _text(rules: Any) -> str:
    return json_util.dumps(rules, json_options=FILTER_JSON)  # in their order: that of fields counts in a filter


class _Rules:
    def __init__(self, rules: Iterable[Mapping[str, Any]], key: str) -> None:
        self._rules = [(re.compile(rule["collections"]), rule) for rule in rules]
        self._key = key

    def effect(self, namespace: Namespace) -> Mapping[str, str]:
        """Path → what happens there, in words that are the same where the same happens; no path: what is selected."""
        effect: dict[str, str] = {}
        for collections, rule in self._rules:
            if collections.fullmatch(namespace):
                effect |= {path: f"set {type(value).__name__} {value!r}" for path, value in rule.get("set", {}).items()}
                effect |= dict.fromkeys(rule.get("hash", ()), f"hash {self._key}")
                effect |= dict.fromkeys(rule.get("drop", ()), "drop")
                if "only" in rule:
                    effect[""] = effect.get("", "") + _text(rule["only"])
        return effect
