"""`restore.py`, `merge.py`, `days.py` and `check.py` of the pages: what they take from the log, without a server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib import util
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import bson
import pytest
from bson import Int64, json_util
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, DuplicateKeyError

from tests.support.page import program
from tests.support.reference import page_s_code
from towpath_verifier import Difference

UNTIL = "2026-11-21T18:00:00+01:00"
SECOND = 1795280400  # of UNTIL
PAGE = "how-to/restore-documents.md"


class Rebuilt:
    """The third set."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.documents = {document["_id"]: document for document in documents}

    def find_one(self, wanted: dict[str, Any], session: object = None) -> RawBSONDocument | None:
        found = self.documents.get(wanted["_id"]["$eq"])
        return None if found is None else RawBSONDocument(bson.encode(found))


class Source(Rebuilt):
    """The source, as `restore` uses it. Its client and its sessions are itself."""

    @property
    def database(self) -> Source:
        return self

    client = database

    @contextmanager
    def start_session(self) -> Iterator[Source]:
        yield self

    @contextmanager
    def start_transaction(self) -> Iterator[Source]:
        yield self

    def insert_one(self, document: RawBSONDocument, session: object) -> None:
        self.documents[document["_id"]] = bson.decode(document.raw)

    def update_one(self, wanted: dict[str, Any], change: dict[str, Any], session: object) -> None:
        document = self.documents[wanted["_id"]["$eq"]]
        document |= change.get("$set", {})
        for name in change.get("$unset", ()):
            del document[name]


def loaded(file: Path) -> ModuleType:
    spec = util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pages' programs need: `update.py`, and a `towpath` whose `tail` prints what `log` has."""
    (tmp_path / "update.py").write_text(page_s_code())
    towpath = tmp_path / "towpath"
    towpath.write_text(
        f"#!/bin/sh\ncase $1 in tail) cat {tmp_path / 'log'} ;; rules) echo '{{\"collections\": []}}' ;; esac\n"
    )
    towpath.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "update", raising=False)


@pytest.fixture
def restore(environment: None, tmp_path: Path) -> ModuleType:
    return loaded(program(PAGE, '"""restore.py', tmp_path))


@pytest.fixture
def check(environment: None, tmp_path: Path) -> ModuleType:
    return loaded(program("verifier.md", '"""check.py', tmp_path))


def change(id: int, kind: str, value: object, time: str = f"{SECOND + 5}:1", op: str = "u") -> dict[str, Any]:
    options = json_util.CANONICAL_JSON_OPTIONS
    text = None if value is None else json_util.dumps(value, json_options=options)
    key = json_util.dumps({"_id": id}, json_options=options)
    return {"kind": kind, "op": op, "key": key, "value": text, "cluster_time": time}


def histories(restore: ModuleType, rebuilt: Rebuilt, *log: dict[str, Any], until: str = UNTIL) -> dict[int, Any]:
    place = Path(restore.__file__ or "").with_name("log")
    place.write_text("".join(f"{json.dumps(one)}\n" for one in log))
    found = restore.histories("shop.toml", "shop.orders", until, rebuilt)
    return {history.id: history for history in found.values()}


NULL: dict[str, Any] = {"$set": {"total": None}}
PAID: dict[str, Any] = {"$set": {"note": "paid"}}


def test_a_change_with_correct_fields_is_listed_and_not_undone(restore: ModuleType) -> None:
    rebuilt = Rebuilt(*({"_id": n, "status": "open", "total": Int64(n)} for n in range(5)), {"_id": 5, "total": None})
    mixed = {"$set": {"status": "paid", "total": None}}
    replaced = {"_id": 2, "status": "paid", "total": None}
    found = histories(
        restore,
        rebuilt,
        change(0, "update", NULL),
        change(1, "update", mixed),
        change(2, "document", replaced),
        change(3, "update", {"$set": {"status": "paid"}}),
        change(4, "update", NULL),
        change(4, "update", {"$set": {"status": "paid"}}),
        change(5, "update", mixed),  # had the value before
    )
    assert {id: (one.mistakes, len(one.later)) for id, one in found.items()} == {
        0: (1, 0),
        1: (1, 1),
        2: (1, 1),
        4: (1, 1),
    }
    line = found[1].shown
    assert line.count("\n") == 1 and '"total": {"$numberLong": "1"}' in line
    assert json_util.loads(line)["later"] == [mixed]


def test_what_came_in_the_second_of_the_time_is_in_the_rebuilt_set_already(restore: ModuleType) -> None:
    rebuilt = Rebuilt({"_id": 1, "lines": [1, 2, 3], "total": 1})
    splice = {"$splice": {"lines": [2, [2, 0, [3]]]}}
    at = change(1, "update", splice, f"{SECOND}:7"), change(1, "update", NULL, f"{SECOND + 1}:1")
    (found,) = histories(restore, rebuilt, *at).values()
    assert bson.decode(found.before.raw)["lines"] == [1, 2, 3]
    (found,) = histories(restore, rebuilt, *at, until=f"{SECOND}:7").values()
    assert found.mistakes == 1
    with pytest.raises(ValueError, match="is not an array"):
        histories(restore, rebuilt, *at, until=f"{SECOND}:6")


def test_a_deleted_document_that_the_set_lacks_is_listed(restore: ModuleType) -> None:
    rebuilt = Rebuilt({"_id": 1, "status": "paid"}, {"_id": 2, "status": "open"})
    found = histories(restore, rebuilt, *(change(id, "delete", None, op="d") for id in (1, 2, 3)))
    assert {id: one.before is not None for id, one in found.items()} == {2: True, 3: False}


def test_only_what_came_in_the_time_of_the_mistake_is_its_own(restore: ModuleType) -> None:
    rebuilt = Rebuilt(*({"_id": n, "status": "open", "total": 1} for n in range(4)))
    late = f"{SECOND + 601}:1"
    found = histories(
        restore,
        rebuilt,
        change(0, "delete", None, f"{SECOND + 600}:9"),
        change(1, "delete", None, late),
        change(2, "update", NULL, late),
    )
    assert [(id, one.deleted) for id, one in found.items()] == [(0, True)]


def test_what_the_mistake_changed_and_then_deleted_after_a_change_of_others_comes_back(restore: ModuleType) -> None:
    rebuilt = Rebuilt(*({"_id": n, "status": "open", "total": 1} for n in range(3)))
    log = [change(id, *what) for id in range(3) for what in (("update", NULL), ("update", PAID), ("delete", None))]
    found = histories(restore, rebuilt, *log, change(2, "document", {"_id": 2, "note": "again"}))
    assert [one.deleted for one in found.values()] == [True, True, False]
    damaged = {"_id": 1, "status": "open", "total": None, "note": "paid"}
    source = Source({"_id": 2, "note": "again"})
    assert [restore.restore(source, found[id])[0] for id in (0, 1)] == ["MERGE, would come back"] * 2
    assert restore.restore(source, found[1], StringIO())[0] == "MERGE, brought back"
    assert restore.restore(source, found[2], StringIO())[0] == "MERGE"
    assert source.documents == {1: damaged, 2: {"_id": 2, "note": "again"}}
    line = json_util.loads(found[1].shown)
    assert (line["before"]["total"], line["later"]) == (1, [PAID])


def test_a_document_that_was_only_read_again_is_no_change_but_one_in_place_of_an_event_is(restore: ModuleType) -> None:
    rebuilt = Rebuilt(*({"_id": n, "status": "open", "total": 1} for n in range(2)))
    found = histories(
        restore,
        rebuilt,
        change(0, "document", {"_id": 0, "status": "open", "total": 1}, op="r"),
        change(0, "delete", None),
        change(0, "delete", None),  # asked for again
        change(1, "document", {"_id": 1, "status": "paid", "total": None}, op="r"),
    )
    assert {id: (one.mistakes, len(one.later)) for id, one in found.items()} == {0: (1, 0), 1: (1, 1)}


def test_only_the_fields_named_are_written_and_only_where_the_log_has_what_the_source_has(
    restore: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt = Rebuilt(*({"_id": n, "status": "open", "total": Int64(n), "tax": 1} for n in range(4)))
    tax = {"_id": 2, "status": "open", "total": None, "tax": 0}
    found = histories(
        restore,
        rebuilt,
        change(0, "update", NULL),
        change(1, "update", NULL),
        change(2, "update", NULL),
        change(2, "document", tax),
        change(3, "update", NULL),
    )
    monkeypatch.setattr(restore, "is_mistake", lambda *_: True)
    also = histories(restore, rebuilt, change(2, "document", tax), change(2, "update", PAID))
    assert not also[2].is_right
    found |= histories(restore, rebuilt, change(2, "document", tax))
    damaged = {n: {"_id": n, "status": "open", "total": None, "tax": 1} for n in range(4)} | {2: dict(tax)}
    source = Source(*damaged.values())
    source.documents[1] |= {"note": "the log lacks it"}
    source.documents[3] = {"_id": 3, "status": "open", "tax": 1}
    found[3].now.pop("total")  # the mistake took the field away
    done, written, was = restore.restore(source, found[0], StringIO())
    assert (done, written) == ("restored", {"$set": {"total": Int64(0)}})
    assert bson.decode(was.raw) == {"_id": 0, "status": "open", "total": None, "tax": 1}
    assert source.documents[0]["total"] == 0
    assert restore.shown(written, was) == "  total: null → 0"
    assert restore.restore(source, found[1], StringIO())[0] == "KEPT, not yet in the log"
    assert restore.restore(source, found[2], StringIO())[0] == "KEPT, also changed: tax"
    assert source.documents[2] == tax
    done, written, was = restore.restore(source, found[3])
    assert (done, restore.shown(written, was)) == ("would be restored", "  total: none → 3")


def test_a_field_that_the_mistake_added_is_unset(restore: ModuleType) -> None:
    rebuilt = Rebuilt({"_id": 1, "status": "open"})
    (found,) = histories(restore, rebuilt, change(1, "update", NULL)).values()
    source = Source({"_id": 1, "status": "open", "total": None})
    done, written, was = restore.restore(source, found, StringIO())
    assert (done, written, restore.shown(written, was)) == (
        "restored",
        {"$unset": {"total": ""}},
        "  total: null → none",
    )
    assert source.documents[1] == {"_id": 1, "status": "open"}


@pytest.mark.parametrize(
    ("since", "is_right"),
    [
        ([("update", {"$set": {"total": Int64(5)}}), ("update", PAID)], True),  # restored or merged; then a customer
        ([("update", PAID), ("update", {"$set": {"total": Int64(5)}}), ("delete", None)], True),  # by a customer
        ([("update", {"$set": {"total": 5}})], False),  # of another type
        ([("update", {"$set": {"total": Int64(5)}}), ("update", NULL)], False),  # the mistake came again
        ([("delete", None), ("document", {"_id": 1, "total": Int64(5)})], False),  # a new document
    ],
)
def test_what_was_right_again_since_the_mistake_needs_nothing(
    restore: ModuleType, since: list[Any], is_right: bool
) -> None:
    late = f"{SECOND + 9000}:1"
    rebuilt = Rebuilt({"_id": 1, "status": "open", "total": Int64(5)})
    times = {True: f"{SECOND + 5}:1", False: late}
    log = [change(1, kind, value, times[value == NULL]) for kind, value in since]
    (found,) = histories(restore, rebuilt, change(1, "update", NULL), *log).values()
    assert found.is_right == is_right
    if is_right:
        assert restore.restore(Source(), found, StringIO())[0] == "as before"


def test_a_change_in_chunks_is_listed(restore: ModuleType) -> None:
    chunks = {"$chunks": {"of": b"0" * 16, "count": 2, "size": 9, "document": False}}
    found = histories(restore, Rebuilt({"_id": 1, "total": 1}), change(1, "update", chunks), change(1, "update", NULL))
    assert restore.restore(Source({"_id": 1}), found[1], StringIO())[0] == "MERGE"
    assert found[1].unclear


def connected(
    restore: ModuleType, source: Source, rebuilt: Rebuilt, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`restore.main` finds these two, and writes its files into this folder."""
    sides = {"source": {"shop": {"orders": source}}, "rebuilt": {"shop": {"orders": rebuilt}}}
    monkeypatch.setattr(restore, "MongoClient", lambda uri, **_: sides[uri])
    for side in sides:
        monkeypatch.setenv(side.upper(), side)
    monkeypatch.chdir(folder)


def keys(folder: Path) -> list[Any]:
    """The keys in the files of what was written, which are in this folder."""
    lines = [text for file in folder.glob("written-*.jsonl") for text in file.read_text().splitlines()]
    return [json_util.loads(json.loads(line)["key"]) for line in lines]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, AutoReconnect])
def test_what_was_written_has_a_line_also_when_the_commit_does_not_say_so(
    restore: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    class Unsure(Source):
        @contextmanager
        def start_transaction(self) -> Iterator[Source]:
            yield self
            raise failure

    source = Unsure()
    connected(restore, source, Rebuilt({"_id": 1, "status": "open"}), tmp_path, monkeypatch)
    histories(restore, Rebuilt(), change(1, "delete", None))
    with pytest.raises(KeyboardInterrupt) if failure is KeyboardInterrupt else nullcontext():
        restore.main("shop.toml", "shop.orders", UNTIL, "--write")
    assert (source.documents[1]["status"], keys(tmp_path)) == ("open", [{"_id": 1}])


def test_what_the_source_rejects_has_no_line(
    restore: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def insert_one(*_: object, **__: object) -> None:
        raise DuplicateKeyError("E11000")

    source = Source()
    monkeypatch.setattr(source, "insert_one", insert_one)
    connected(restore, source, Rebuilt({"_id": 1, "status": "open"}), tmp_path, monkeypatch)
    histories(restore, Rebuilt(), change(1, "delete", None))
    assert restore.main("shop.toml", "shop.orders", UNTIL, "--write") == 1
    assert keys(tmp_path) == []


def test_its_exit_code_says_whether_all_is_restored_and_lines_whether_the_document_is_gone(
    restore: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuilt = Rebuilt(*({"_id": n, "status": "open", "total": 1} for n in range(3)))
    source = Source({"_id": 1, "status": "open", "total": None, "note": "paid"})
    connected(restore, source, rebuilt, tmp_path, monkeypatch)
    deleted, merged = change(0, "delete", None), [change(1, "update", NULL), change(1, "update", PAID)]
    arguments = "shop.toml", "shop.orders", UNTIL
    histories(restore, rebuilt, deleted)
    assert restore.main(*arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        'would be restored        {"_id": 0}  (1 by the mistake, 0 by others since, deleted)',
        "1 would be restored",
    ]
    histories(restore, rebuilt, deleted, *merged)
    assert restore.main(*arguments, "--write") == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        'MERGE                    {"_id": 1}  (1 by the mistake, 1 by others since)',
        "1 restored; 1 MERGE",
    ]
    assert source.documents[0]["status"] == "open"
    [text] = max(tmp_path.glob("written-*.jsonl"), key=lambda file: file.name).read_text().splitlines()
    written = json.loads(text)
    assert (json_util.loads(written["key"]), written["was"]) == ({"_id": 0}, "null")
    assert json_util.loads(written["value"]) == source.documents[0]
    [text] = max(tmp_path.glob("merge-*.jsonl")).read_text().splitlines()
    assert json_util.loads(text)["_id"] == 1


def test_what_stands_for_changes_that_the_log_lacks_is_listed_at_any_time(restore: ModuleType) -> None:
    rebuilt = Rebuilt({"_id": 1, "total": 1}, {"_id": 2, "total": 1})
    late = f"{SECOND + 9000}:1"  # when it was read: the change itself came in the time of the mistake
    read = change(1, "document", {"_id": 1, "total": None}, late, op="r")
    same = change(2, "document", {"_id": 2, "total": 1}, late, op="r")
    found = histories(restore, rebuilt, read, same)
    assert {id: one.unclear for id, one in found.items()} == {1: True}  # perhaps a customer's own null


def test_types_that_python_does_not_have_are_not_written_as_others(restore: ModuleType) -> None:
    symbol = bson.encode({"_id": 1, "status": "open", "s": "x", "total": 1}).replace(b"\x02s\0", b"\x0es\0")
    rebuilt = Rebuilt()
    rebuilt.find_one = lambda *_, **__: RawBSONDocument(symbol)  # type: ignore[method-assign]
    (found,) = histories(restore, rebuilt, change(1, "delete", None)).values()
    assert (found.before.raw, found.later) == (symbol, [])
    (found,) = histories(restore, rebuilt, change(1, "update", NULL)).values()
    assert (found.before.raw, len(found.later)) == (symbol, 1)
    (found,) = histories(restore, rebuilt, change(1, "update", PAID), change(1, "update", NULL)).values()
    assert len(found.later) == 1


@pytest.mark.parametrize("kind", ["drop", "rename", "replace"])
def test_documents_of_a_collection_that_was_dropped_since_do_not_come_back(restore: ModuleType, kind: str) -> None:
    rebuilt = Rebuilt({"_id": 1, "total": 1})
    ddl = {**change(1, "ddl", {"ddl": kind}, op="ddl"), "key": '{"ddl": "x"}'}
    with pytest.raises(SystemExit, match="by hand"):
        histories(restore, rebuilt, change(1, "update", NULL), ddl)
    before = ddl | {"cluster_time": f"{SECOND}:3"}
    assert len(histories(restore, rebuilt, before, change(1, "update", NULL))) == 1


def connected_merge(merge: ModuleType, source: object, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`merge.main` finds this source, and writes its file into this folder."""
    monkeypatch.setattr(merge, "MongoClient", lambda _: {"shop": {"orders": source}})
    monkeypatch.setenv("SOURCE", "source")
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_field_has_a_line_before_it_is_set_back_and_none_if_it_has_another_value(
    restore: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    def update_one(*_: object) -> None:
        raise AutoReconnect

    log = change(1, "update", NULL), change(1, "update", PAID)
    (found,) = histories(restore, Rebuilt({"_id": 1, "status": "open", "total": 5}), *log).values()
    (tmp_path / "merge.jsonl").write_text(found.shown)
    merge = loaded(program(PAGE, '"""merge.py', tmp_path))
    source = SimpleNamespace(update_one=update_one, count_documents=lambda _: int(is_damaged))
    connected_merge(merge, source, tmp_path, monkeypatch)
    arguments = tmp_path / "merge.jsonl", "shop.orders", "total", "null", "--write"
    with pytest.raises(AutoReconnect) if is_damaged else nullcontext():
        assert merge.main(*arguments) == 1
    assert keys(tmp_path) == [{"_id": 1}] * is_damaged


def merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, field: str = "total") -> list[dict[str, Any]]:
    """What `merge.py` writes to the document of a line, which has the damaged value."""
    merge = loaded(program(PAGE, '"""merge.py', tmp_path))
    written: list[dict[str, Any]] = []

    def update_one(_: object, change: dict[str, Any]) -> SimpleNamespace:
        written.append(change)
        return SimpleNamespace(matched_count=1)

    connected_merge(merge, SimpleNamespace(update_one=update_one, count_documents=lambda _: 1), tmp_path, monkeypatch)
    (tmp_path / "merge.jsonl").write_text(line)
    assert merge.main(tmp_path / "merge.jsonl", "shop.orders", field, "null", "--write") == (not written)
    lines = [json.loads(text) for file in tmp_path.glob("written-*.jsonl") for text in file.read_text().splitlines()]
    assert [json_util.loads(line["value"]) for line in lines] == written
    return written


@pytest.mark.parametrize(
    ("since", "is_set_back"),
    [
        ([("update", PAID)], True),
        ([("update", {"$set": {"totals": 1, "status": "paid", "total": None}})], True),
        ([("document", {"_id": 1, "note": "paid", "total": None})], True),
        ([("update", {"$set": {"total": 9}}), ("update", NULL)], False),  # by a customer, and the mistake came again
        (
            [("document", {"_id": 1, "total": Int64(5)}), ("update", {"$set": {"total": None, "n": 1}})],
            True,
        ),  # it was right again, and then the mistake came again
        ([("update", {"$unset": {"total": ""}}), ("update", NULL)], False),
        ([("document", {"_id": 1}), ("update", NULL)], False),
        (
            [("update", {"$chunks": {"of": b"0" * 16, "count": 2, "size": 9, "document": False}}), ("update", NULL)],
            False,
        ),
        ([("delete", None), ("document", {"_id": 1, "total": None})], False),  # a customer's new document
    ],
)
def test_a_field_is_set_back_only_if_it_had_no_other_value_since(
    restore: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: list[Any], is_set_back: bool
) -> None:
    rebuilt = Rebuilt({"_id": 1, "status": "open", "total": Int64(5)})
    log = [change(1, kind, value) for kind, value in [("update", NULL), *since]]
    (found,) = histories(restore, rebuilt, *log).values()
    assert merged(tmp_path, monkeypatch, found.shown) == ([{"$set": {"total": Int64(5)}}] if is_set_back else [])


def test_what_an_earlier_run_has_brought_back_is_merged(
    restore: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = {"_id": 1, "status": "open", "total": None, "note": "paid"}
    log = ("update", NULL), ("update", PAID), ("delete", None), ("document", damaged)
    (found,) = histories(
        restore, Rebuilt({"_id": 1, "status": "open", "total": 5}), *(change(1, *one) for one in log)
    ).values()
    assert merged(tmp_path, monkeypatch, found.shown) == [{"$set": {"total": 5}}]


def test_each_document_is_in_one_part(restore: ModuleType) -> None:
    rebuilt = Rebuilt(*({"_id": n, "total": 1} for n in range(20)))
    log = [change(n, "update", NULL) for n in range(20)]
    histories(restore, rebuilt, *log)
    for numbers in ((1, 2, 3), (0, 1, 2)):
        parts = [restore.histories("shop.toml", "shop.orders", UNTIL, rebuilt, part, 3) for part in numbers]
        assert all(parts)
        assert sorted(history.id for part in parts for history in part.values()) == list(range(20))


CHUNKS: dict[str, Any] = {"$chunks": {"of": b"0" * 16, "count": 2, "size": 9, "document": True}}


@pytest.mark.parametrize(
    ("log", "later"),
    [
        ([("document", {"_id": 1, "total": 1}), ("update", CHUNKS)], ("update", NULL, "u")),  # the set lacks the update
        ([("document", CHUNKS)], ("update", NULL, "u")),
        ([], ("update", NULL, "u")),  # retention has deleted the document
        ([], ("delete", None, "d")),
    ],
)
def test_a_document_that_the_log_does_not_give_is_not_proven(
    check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    log: list[Any],
    later: tuple[str, Any, str],
) -> None:
    found = [{"_id": 1, "total": 1}] if len(log) == 2 else []
    assert checked(check, monkeypatch, found, [change(1, *one) for one in log], change(1, *later[:2], op=later[2])) == 1
    assert "WRONG: not as of the time 1" in capsys.readouterr().out


def test_a_document_that_was_inserted_later_is_not_wrong(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    inserted = change(1, "document", {"_id": 1}, op="c")
    assert checked(check, monkeypatch, [], [], inserted, change(1, "update", NULL)) == 0


def checked(
    check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    rebuilt: list[dict[str, Any]],
    until: list[dict[str, Any]],
    *since: dict[str, Any],
) -> int:
    """The exit code of `check.py`, where the two sides do not differ otherwise."""

    class Compared(list[Difference]):
        def __init__(self, *_: object) -> None:
            self.verdict = SimpleNamespace(tallies=[SimpleNamespace(documents=1)], errors=[])

    monkeypatch.setattr(check, "Verification", Compared)
    monkeypatch.setattr(check, "MongoClient", lambda uri, **_: {"shop": {"orders": Rebuilt(*rebuilt)}})
    for side in ("SOURCE", "REBUILT"):
        monkeypatch.setenv(side, side)
    logs = {"--until": until, "--since": since}
    monkeypatch.setattr(check, "records", lambda _, __, bound, ___: [{"partition": 0} | one for one in logs[bound]])
    code: int = check.main("shop.toml", "shop.orders", UNTIL)
    return code


@pytest.mark.parametrize(("total", "wrong"), [(1, []), (2, ["WRONG: not as of the time 1"])])
def test_a_set_as_of_a_later_time_is_wrong(
    check: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    total: int,
    wrong: list[str],
) -> None:
    differs = Difference("shop.orders", bson.encode({"_id": 2}), None, bson.encode({"_id": 2}))
    verdict = SimpleNamespace(tallies=[SimpleNamespace(documents=1)], errors=[])

    class Compared(list[Difference]):
        def __init__(self, *_: object) -> None:
            super().__init__([differs] if wrong else [])
            self.verdict = verdict

    rebuilt = Rebuilt({"_id": 1, "total": total})
    monkeypatch.setattr(check, "Verification", Compared)
    monkeypatch.setattr(check, "MongoClient", lambda uri, **_: {"shop": {"orders": rebuilt}})
    for side in ("SOURCE", "REBUILT"):
        monkeypatch.setenv(side, side)
    first = change(1, "document", {"_id": 1, "total": 1}, f"{SECOND - 9}:1", op="r")
    later = change(1, "update", {"$set": {"total": 2}})
    logs = {"--until": [first], "--since": [later]}
    monkeypatch.setattr(check, "records", lambda _, __, bound, ___: [{"partition": 0} | one for one in logs[bound]])
    assert check.main("shop.toml", "shop.orders", UNTIL) == bool(wrong)
    last = f"1 documents; 1 in the log since {UNTIL}; {2 if wrong else 0} WRONG"
    assert capsys.readouterr().out.splitlines() == [*(["WRONG: extra 2"] if wrong else []), *wrong, last]


@pytest.mark.parametrize("last", ["delete", "ddl"])
def test_a_document_on_each_day_has_what_the_log_has_at_its_end(
    environment: None, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    days = loaded(program("how-to/point-in-time.md", '"""days.py', tmp_path))
    night = int(datetime(2026, 10, 24, 22, tzinfo=UTC).timestamp())  # the first second of the 25th in Berlin
    log = [
        change(7, "document", {"_id": 7, "n": 1}, f"{night - 1}:1"),
        change(7, "update", {"$set": {"n": 2}}, f"{night + 25 * 3600 - 1}:9"),  # that day has 25 hours
        change(7, last, None if last == "delete" else {"ddl": "drop"}, f"{night + 25 * 3600}:1"),
    ]
    log = [{"partition": 0} | one for one in log]
    log.append(log[-1] | {"partition": 1, "kind": "ddl", "value": '{"ddl": "drop"}', "cluster_time": f"{night}:1"})
    monkeypatch.setattr(sys, "stdin", [json.dumps(one) for one in log])
    days.main("2026-10-23", "2026-10-26", "Europe/Berlin")
    assert capsys.readouterr().out.splitlines() == [
        "2026-10-23  not in the log",
        '2026-10-24  {"_id": 7, "n": 1}',
        '2026-10-25  {"_id": 7, "n": 2}',
        "2026-10-26  deleted",
    ]
    chunks = change(7, "document", CHUNKS, f"{night}:1") | {"partition": 0}
    monkeypatch.setattr(sys, "stdin", [json.dumps(chunks)])
    with pytest.raises(SystemExit, match="chunks"):
        days.main("2026-10-25", "2026-10-25", "Europe/Berlin")


def test_the_log_adds_up_to_the_documents_of_a_time(check: ModuleType) -> None:
    log = [
        change(1, "document", {"_id": 1, "n": Int64(1)}, op="r"),
        change(2, "document", {"_id": 2}),
        change(3, "document", {"_id": 3}),
        {**change(1, "ddl", {"ddl": "drop"}, op="ddl"), "partition": 1},
        change(1, "update", {"$set": {"m": 2}}),
        change(2, "delete", None),
        change(4, "update", {"$set": {"m": 2}}),  # its row follows
    ]
    log = [{"partition": 0} | one for one in log]
    places = {(one["partition"], one["key"]): json_util.loads(one["key"])["_id"] for one in log if one["op"] != "ddl"}
    found = check.as_of(log, {place for place, id in places.items() if id != 3})
    assert {places[place]: document for place, document in found.items()} == {1: {"_id": 1, "n": 1, "m": 2}, 2: None}
    assert check.as_of([*log, {**log[3], "partition": 0}], places) == {}


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("total", {"$set": {"total": Int64(7)}}),
        ("a.b", {"$set": {"a.b": 1}}),
        ("a.c", {"$unset": {"a.c": ""}}),
        ("none.c", {"$unset": {"none.c": ""}}),
        ("total.c", {"$unset": {"total.c": ""}}),
    ],
)
def test_a_field_is_set_back_or_unset(tmp_path: Path, field: str, change: dict[str, Any]) -> None:
    merge = loaded(program(PAGE, '"""merge.py', tmp_path))
    assert merge.change_to({"total": Int64(7), "a": {"b": 1}}, field) == change
