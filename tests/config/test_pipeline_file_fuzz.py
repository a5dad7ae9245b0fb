"""Pipeline files that no one meant to write: a clear message and exit code 2, never a stack trace."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

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
[[collections.rules]]
collections = "shop.*"
drop = ["ssn", "cards.number"]
set = { country = "redacted", "a.b" = 1 }
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
""".lstrip()
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
    '"~no-user-of-that-name/x"',
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
LINES = FILE.splitlines()
#: What takes the place of a line.
edits = st.one_of(
    st.just(lambda line: []),
    st.sampled_from(LINES).map(lambda other: lambda line: [line, other]),
    st.sampled_from(VALUES).map(lambda value: lambda line: [f"{line.partition('=')[0]}= {value}"]),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)).map(lambda pair: lambda line: [" = ".join(pair), line]),
)


@st.composite
def edited(draw: st.DrawFn) -> bytes:
    """The file with a line or two changed, and at times broken bytes; or bytes that are no file at all."""
    lines = list(LINES)
    for at, edit in draw(st.lists(st.tuples(st.integers(0, len(LINES) - 1), edits), max_size=2)):
        lines[at : at + 1] = edit(lines[at] if at < len(lines) else "")
    raw = "\n".join(lines).encode()
    at = draw(st.integers(0, len(raw)))
    return draw(
        st.one_of(
            st.just(raw),
            st.just(raw[:at]),
            st.binary(min_size=1, max_size=9).map(lambda more: raw[:at] + more + raw[at:]),
            st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\r"]).map(lambda mark: mark + raw),
            st.binary(max_size=300),
        )
    )


def _exit_code(monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["towpath", "status", str(path)])
    return cli.exit_code()


@settings(max_examples=3 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=edited())
def test_any_file_is_a_pipeline_or_is_refused_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tmp_path / "shop.toml"
    for private in (path, tmp_path / "user"):
        private.touch(0o600)
    (tmp_path / "user").write_text("u:p\n")
    path.write_bytes(content)
    try:
        pipeline = read(path)
    except BadPipelineFile as refused:
        event("refused")
        assert len(str(refused)) < 20_000
        assert _exit_code(monkeypatch, path) == 2
        said = capsys.readouterr()
        assert said.err.startswith("towpath: ")
        assert said.out == ""
        return
    event("a pipeline")
    httpx.Client(base_url=pipeline.connect.url, verify=False).close()  # as `Connect` opens it
    assert "u:p@" not in without_credentials(pipeline.source.uri)
    assert properties(pipeline, "a", "b").count("\n") == 2
    assert destination_uri(pipeline)
    assert -1 <= pipeline.log.retention < 2**63
    assert pipeline.connectors


def test_the_file_that_is_edited_is_a_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    for private in (path, tmp_path / "user"):
        private.touch(0o600)
    (tmp_path / "user").write_text("u:p\n")
    path.write_text(FILE)
    assert read(path).name == "shop"


@pytest.mark.parametrize("odd", ["folder", "missing", "x" * 300, "loop", "/dev/null"])
def test_what_is_no_file_is_refused_with_a_message(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert _exit_code(monkeypatch, tmp_path / odd) == 2
    said = capsys.readouterr().err
    assert said.startswith(("towpath: ", "Usage: "))
    assert "Traceback" not in said
