"""What `towpath verify` prints, keeps and writes, of verdicts made by hand."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.checks.test_check_judgements import PIPELINE
from tests.support import bsonbytes as b
from tests.support.cutover_world import pipeline_of
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import session_of
from towpath.cli.progress import documents_compared
from towpath.cli.verdict import SCREEN_LIMITS, show
from towpath.cli.verify import verify
from towpath.config.events import as_line
from towpath.deploy.schema import Metadata
from towpath.errors import TowpathError
from towpath.store import state_files, verdict_file
from towpath.store.verdict_file import FollowState
from towpath.verify.result import Example, VerificationResult, as_event
from towpath.verify.run import differences
from towpath.verify.verdict import VerdictContext
from towpath_verifier import Command, Difference, MetadataDifference, Pair, Progress, Tally, Verdict

ONE = b.document(("_id", b.int32(1)), ("n", b.int32(5)), ("ratio", b.double_bits(0x7FF8_0000_0000_0001)))
OTHER = b.document(("_id", b.int32(1)), ("n", b.int64(5)), ("ratio", b.double_bits(0x7FF8_0000_0000_0000)))
ID = b.document(("_id", b.int32(1)))
BROKEN = b.document(("_id", b.string("x")), ("s", b.Value(b.Type.STRING, b"\x02\0\0\0\xff\0")))


def verdict(*tallies: Tally, seconds: float = 2.0) -> Verdict:
    return Verdict(list(tallies), seconds=seconds)


def tally(**numbers: object) -> Tally:
    found = Tally(Pair("shop.orders", "archive.orders"), documents=10, expected=10, read=200)
    for name, value in numbers.items():
        setattr(found, name, value)
    return found


def test_values_that_extended_json_cannot_tell_apart_are_shown_as_bytes() -> None:
    n, ratio = Difference("shop.orders", ID, ONE, OTHER).paths
    assert n == ("n", '{"$numberInt": "5"}', '{"$numberLong": "5"}')
    assert ratio == ("ratio", "BSON type 0x01 010000000000f87f", "BSON type 0x01 000000000000f87f")


def test_a_run_that_a_failed_connector_ends_names_what_continues_it() -> None:
    said = list[str]()

    def ended() -> Iterator[Difference]:
        yield Difference("shop.orders", ID, ONE, OTHER)
        raise TowpathError("move-sink has failed: TWP-CONFIG: bad", code="TWP-CONFIG")

    session = session_of(PIPELINE, say=said.append)
    for resumable in (False, True):
        with pytest.raises(TowpathError, match="TWP-CONFIG"):
            list(differences(session, ended(), [], resumable=resumable))
    assert said == ["`towpath verify --resume` continues from here"]


def test_what_is_not_utf_8_is_shown_as_bytes() -> None:
    example = Example.of(Difference("shop.orders", b.document(("_id", b.string("x"))), BROKEN, None))
    assert example.source is not None and BROKEN.hex() in example.source
    assert example.destination is None


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (tally(), "same"),
        (tally(way="hashed"), "same"),
        (tally(way="screened"), "screened"),
        (tally(unresolved=1), "no verdict"),
        (tally(errors=["dropped"]), "no verdict"),
        (tally(kinds=Counter(extra=1)), "not the same"),
    ],
)
def test_a_headline_says_no_more_than_what_was_seen(found: Tally, wanted: str) -> None:
    assert VerificationResult(verdict(found)).headline == found.verdict == wanted
    assert verdict(found).clean == (wanted in ("same", "screened"))


def test_the_text_names_counts_paths_and_what_digests_do_not_see(capsys: pytest.CaptureFixture[str]) -> None:
    found = tally(notes=["shop.orders is odd"])
    found.kinds["different"] = 3
    show(VerificationResult(verdict(found), [Example.of(Difference("shop.orders", ID, ONE, OTHER))]))
    said = capsys.readouterr().out
    assert "shop.orders → archive.orders" in said
    assert "note: shop.orders is odd" in said
    assert 'n: {"$numberInt": "5"} at the source, {"$numberLong": "5"} at the destination' in said
    assert "and 2 more" in said
    assert "not the same: 10 documents in 2.0 s, 5 a second, 20 bytes a document in replies" in said
    show(VerificationResult(verdict(tally(way="screened"))))
    assert SCREEN_LIMITS in capsys.readouterr().out


def test_the_last_line_of_json_has_the_counts() -> None:
    found = tally()
    found.kinds["missing"] = 1
    last = as_event(VerificationResult(verdict(found)), "everything").as_json()
    assert {
        name: last[name] for name in ("clean", "compared", "missing", "extra", "different", "order", "seconds")
    } == {
        "clean": False,
        "compared": 10,
        "missing": 1,
        "extra": 0,
        "different": 0,
        "order": 0,
        "seconds": 2.0,
    }
    assert last["documents_per_second"] == 5


def test_a_verdict_is_kept_whole_and_read_again(tmp_path: Path) -> None:
    place = tmp_path / "verdict.jsonl"
    odd = b.document(("_id", b.Value(b.Type.STRING, b"\x02\0\0\0\xff\0")))
    found = [Difference("shop.orders", ID, ONE, OTHER), Difference("shop.orders", odd, None, odd)]
    with state_files.writing(place) as file:
        for one in found:
            file.write(verdict_file.difference(one, "archive.orders").line)
        file.write(as_line({"clean": False}))
    assert place.stat().st_mode & 0o777 == 0o600
    read = list(verdict_file.read(place))
    assert [(one.destination_namespace, one.key, one.kind) for one in read] == [
        ("archive.orders", ID, "different"),
        ("archive.orders", odd, "extra"),
    ]
    assert [part[0] for part in read[0].paths] == ["n", "ratio"]
    assert json.loads(place.read_text().splitlines()[1])["id"] is None
    assert verdict_file.counts(place) == {"clean": False}


def test_a_verdict_that_broke_off_leaves_the_last_one_and_is_not_taken_for_whole(tmp_path: Path) -> None:
    place = tmp_path / "verdict.jsonl"
    with pytest.raises(TowpathError, match="there is no verdict"):
        list(verdict_file.read(place))
    place.write_text(as_line({"clean": True}))
    with pytest.raises(RuntimeError), state_files.writing(place) as file:
        file.write(as_line({"clean": False}))
        raise RuntimeError
    assert verdict_file.counts(place) == {"clean": True}
    place.write_text(verdict_file.difference(Difference("a.b", ID, None, ONE), "a.b").line)
    with pytest.raises(TowpathError, match="is not whole"):
        list(verdict_file.read(place))
    place.write_text('{"kind": "extra"}\n{"clean": false}\n')
    with pytest.raises(TowpathError, match="line 1, is not a difference"):
        list(verdict_file.read(place))


def test_progress_tells_rate_and_time_left() -> None:
    line = documents_compared(Progress(50_000, 200_000, 10, 2, 3, 10.0))
    assert line == "50,000 of about 200,000, 5,000 a second, 0:00:30 left; 3 being re-read"


def test_fields_in_another_order_are_named_in_both() -> None:
    inner = [("a", b.NULL), ("z", b.NULL)]
    sides = [b.document(("_id", b.int32(1)), ("o", b.embedded(*fields))) for fields in (inner, reversed(inner))]
    found = Difference("shop.orders", ID, *sides)
    assert found.kind == "order"
    assert found.paths == [("o", "fields in the order a, z", "fields in the order z, a")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--quiet", "--screen"], "--quiet does not go with --screen"),
        (["--quiet", "--resume"], "--quiet does not go with --resume"),
        (["--tries", "0"], "tries 1 or more"),
        (["--patience", "nan"], "patience are 0 or more and finite"),
        (["--namespace", "orders"], "write database.collection"),
        (["--processes", "0"], "is not in the range"),
    ],
)
def test_options_that_cannot_be_are_refused(options: list[str], words: str) -> None:
    done = CliRunner().invoke(verify, ["nowhere.toml", *options])
    assert done.exit_code == 2
    assert words in done.output


INDEX = MetadataDifference(
    *(Pair("shop.users", "shop.users"), "index", "email", "the index email is unique only at the destination"),
    *({}, {}, (Command("shop", {"dropIndexes": "users", "index": "email"}),)),
)


@pytest.mark.parametrize("why", ["", "shop-back is not deployed, and makes no initial copy"])
def test_no_command_is_offered_for_a_destination_that_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """It may be the primary, and would lose what is unique there."""
    module: Any = sys.modules["towpath.cli.verify"]

    def compared(session: Any, pairs: object, options: object, request: Any, **_: object) -> VerificationResult:
        result = VerificationResult(verdict(tally()), (), request.metadata)
        show(result)
        return result

    for name, value in {
        "opened": lambda file: nullcontext(session_of(pipeline_of(tmp_path, "shop-back"))),
        "Listing": SimpleNamespace(read=lambda session: None),
        "time_to_remember": lambda session: None,
        "metadata": lambda *_: Metadata([INDEX], []),
        "no_copy": lambda session: why,
        "run": compared,
    }.items():
        monkeypatch.setattr(module, name, value)
    done = CliRunner().invoke(verify, ["shop-back.toml", "--last", "1", "--metadata"])
    assert done.exit_code == 1 and INDEX.what in done.output
    assert ("run at the destination" in done.output) is not bool(why) and why in done.output
    assert Metadata([INDEX], []).without_commands.differences[0].as_json()["command"] == ""


def test_what_is_created_while_collections_are_listed_is_followed_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    module: Any = sys.modules["towpath.cli.verify"]
    topics = MemoryTopics(**{"shop.shop.users": 1})
    topics.write("shop.shop.users", (ID, None, 5))
    session, started = session_of(pipeline_of(tmp_path), topics=topics), list[FollowState]()

    def listed(_: object) -> Any:
        topics.write(topics.make("shop.shop.new"), (ID, None, 6))
        topics.write("shop.shop.users", (ID, None, 6))
        return SimpleNamespace(pairs=lambda only: [])

    def followed(_: object, start: FollowState, *others: object, **how: object) -> int:
        started.append(start)
        return 0

    context = SimpleNamespace(origin=None)
    monkeypatch.setattr(VerdictContext, "read", lambda *_, **__: context)
    for name, value in {
        "opened": lambda file: nullcontext(session),
        "started_ahead": nullcontext,
        "Listing": SimpleNamespace(read=listed),
        "run": lambda *_, **__: VerificationResult(verdict(tally())),
        "_follow": followed,
    }.items():
        monkeypatch.setattr(module, name, value)
    done = CliRunner().invoke(verify, ["shop.toml", "--follow", "--alone", "--no-metadata"])
    assert done.exit_code == 0, done.output
    assert [start.places for start in started] == [{("shop.shop.users", 0): 2}]
