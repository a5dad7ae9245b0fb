"""Pipeline files that nobody meant to write: words and exit status 2, never a stack trace."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.support.fuzz import cases, told
from towpath import cli
from towpath.config.loading import read
from towpath.config.mongo_uri import without_credentials
from towpath.errors import BadPipelineFile
from towpath.store.credentials import destination_uri, properties

FILE = """
name = "shop"
mode = "exactly-once"
[source]
uri = "mongodb://u:p@127.0.0.1:1/?replicaSet=a"
[destination]
uri = "mongodb://127.0.0.1:2/"
[collections]
include = ["shop.*", "audit.log"]
exclude = ["shop.tmp*"]
[collections.rename]
"shop.orders" = "archive.orders"
[kafka]
bootstrap = "127.0.0.1:9092"
partitions = 4
[connect]
url = "http://127.0.0.1:8083"
secrets = "secrets"
user_file = "user"
[capture]
copy = "towpath"
copy_tasks = 2
copy_threads = 4
splice_cache = "64MiB"
[write]
concern = "majority"
wtimeout = "60s"
fold = true
[log]
retention = "30d"
compact = true
compaction_lag = "24h"
"""
KEYS = ["x", "uri", "name", '""', "é"]
VALUES = [
    '"mongodb://h/?tlsCAFile=%00"',
    '"mongodb://h/?tlsCAFile=/nowhere"',
    '"http://u:p@h"',
    "1",
    "-1",
    "0",
    "9223372036854775808",
    "1" * 5000,
    "1e400",
    "nan",
    "true",
    '""',
    '"\\u0000"',
    '"a\\nb"',
    '"\\u202e"',
    '"~nobody-of-that-name/x"',
    '"' + "x" * 5000 + '"',
    '"http://[::1"',
    '"http://h:99999999"',
    '"http://"',
    '"mongodb://[::1"',
    '"mongodb://h:port"',
    '"mongodb://"',
    '"99999999999999999999d"',
    '"9999999999w"',
    "[]",
    "[1]",
    '["\\u0000.x"]',
    "{}",
    "{ a = 1 }",
    "1979-05-27T07:32:00Z",
    "[" * 3000 + "]" * 3000,
    "'''",
]


def _mutated(random: Random) -> bytes:
    lines = FILE.splitlines()
    for _ in range(random.randint(0, 2)):
        at = random.randrange(1, len(lines))
        match random.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, random.choice(lines))
            case 2:
                lines[at] = f"{lines[at].partition('=')[0]}= {random.choice(VALUES)}"
            case 3:
                lines.insert(at, f"{random.choice(KEYS)} = {random.choice(VALUES)}")
            case 4:
                random.shuffle(lines)
    raw = bytearray("\n".join(lines).encode())
    match random.randrange(8):
        case 0:
            for _ in range(random.randint(1, 4)):
                raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
        case 1:
            del raw[random.randrange(len(raw)) :]
        case 2:
            raw[:0] = random.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\r"])
        case 3:
            at = random.randrange(len(raw))
            raw[at:at] = random.randbytes(random.randint(1, 9))
        case 4:
            raw = bytearray(random.randbytes(random.randint(0, 300)))
    return bytes(raw)


def _ended(monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["towpath", "status", str(path)])
    return cli.exit_status()


def test_any_file_is_a_pipeline_or_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, outcomes = tmp_path / "shop.toml", Counter[str]()
    path.touch(0o600)
    (tmp_path / "user").write_text("u:p\n")
    (tmp_path / "user").chmod(0o600)
    for case, random in cases("pipeline files", 1_000):
        path.write_bytes(_mutated(random))
        try:
            pipeline = read(path)
        except BadPipelineFile as refused:
            assert len(str(refused)) < 20_000, case
            outcomes["refused"] += 1
            assert _ended(monkeypatch, path) == 2, case
            said = capsys.readouterr()
            assert said.err.startswith("towpath: "), case
            assert said.out == "", case
            continue
        outcomes["a pipeline"] += 1
        httpx.Client(base_url=pipeline.connect.url, verify=False).close()  # as `Connect` opens it
        assert "u:p@" not in without_credentials(pipeline.source.uri), case
        assert properties(pipeline, "a", "b").count("\n") == 2, case
        assert destination_uri(pipeline), case
        assert -1 <= pipeline.log.retention < 2**63, case
        assert pipeline.connectors, case
    told("pipeline files", outcomes)
    assert min(outcomes.values()) > 100


@pytest.mark.parametrize("odd", ["folder", "missing", "x" * 300, "loop", "/dev/null"])
def test_what_is_no_file_is_refused_in_words(odd, tmp_path, monkeypatch, capsys):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert _ended(monkeypatch, tmp_path / odd) == 2
    said = capsys.readouterr().err
    assert said.startswith(("towpath: ", "Usage: "))
    assert "Traceback" not in said
