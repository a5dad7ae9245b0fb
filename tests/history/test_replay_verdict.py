"""The verdict of a replay as text."""

from __future__ import annotations

import bson

from towpath.cli.replay import lines
from towpath.config.events import Replayed
from towpath.history.sink_run import missing
from towpath.log.integrity import BrokenKey, Headless, LogCheck

BROKEN = tuple(BrokenKey("shop.orders", bson.encode({"_id": number}), 0, 100 + number) for number in range(22))
CHECK = LogCheck(
    records=2_000,
    headless=(Headless("shop.orders", "shop.shop.orders", 0, 100, 1_795_284_000_000),),
    broken=BROKEN,
    earliest=None,
    cut_short={("shop.shop.parcels", 1): "TWP-LOG-TOPIC: the topic was deleted and recreated"},
)
LETTER = {"namespace": "shop.orders", "key": '{"_id": 7}', "code": "121", "reason": "Document failed validation"}
VERDICT = Replayed(
    done="replay copy",
    whole=False,
    records=2_000,
    documents={"shop.orders": 1_200, "shop.parcels": 0},
    seconds=4.0,
    until="1795284000:7",
    following=False,
    refused=1,
    dead_letters=[LETTER],
    dead_letter_topic="shop-replay-copy.dead-letters",
    uncopied=False,
    missing=missing(CHECK),
    deleted_since=[],
    earliest=None,
)


def test_the_text_of_a_verdict_lists_what_is_missing_and_what_was_refused() -> None:
    first, *rest = lines(VERDICT)
    assert first == (
        "replay copy: read 2,000 records in 4 s, 500 a second; 1,200 documents in 2 namespaces,"
        " as of 1795284000:7 (2026-11-21T18:00:00Z)"
    )
    assert rest[0].endswith("has deleted what came in before 2026-11-21 18:00:00 UTC (offsets up to 99)")
    assert rest[1].startswith("missing  shop.shop.parcels, partition 1: TWP-LOG-TOPIC")
    assert rest[2] == 'missing  shop.orders {"_id": 0}: updates without their document, from 0:100 on'
    assert rest[22] == "         and 2 more documents"
    assert rest[23].startswith("shop.orders: 22 documents cannot be rebuilt")
    assert rest[24] == 'refused  shop.orders {"_id": 7}: Document failed validation (121)'
    assert rest[-1] == "replay copy: not whole"


def test_the_rows_of_what_is_missing_are_those_of_json() -> None:
    head, cut, *broken = missing(CHECK)
    assert head.keys() == {"namespace", "partition", "first_offset", "first_time_ms"}
    assert cut.keys() == {"topic", "partition", "reason"}
    assert broken[0] == {"namespace": "shop.orders", "partition": 0, "offset": 100, "key": '{"_id": 0}'}
    assert missing(None) == []
