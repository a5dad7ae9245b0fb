"""Where the figures on the pages come from. A test fails for a figure that is not here, and for one that differs.

A place is a page and what it says, long enough to have one meaning there; every occurrence on the page counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.bench.__main__ import BENCHES
from tests.bench.arrays import READING
from tests.docs.values import goal, median, option, share, value
from towpath.bookkeeping.positions import TRANSACTION_BOUNDS_MS

Values = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` gives the numbers of each place, in base units (seconds, bytes, parts of 1); without it none is compared.

    `exact`: the page must not round it.
    """

    source: str
    places: tuple[str, ...]
    value: Callable[[], Values] | None = None
    exact: bool = False


def code(source: str, *places: str, unit: float = 1) -> Figure:
    """What the code has, which counts in this unit.

    `values.value` says how to name it; `Fold.java:MOST_PLACES, MOST_BYTES` are two of one file.
    """
    return Figure(source, places, lambda: tuple(value(each) * unit for each in _each(source)), exact=True)


def _each(source: str) -> Iterator[str]:
    file = ""
    for name in source.split(", "):
        yield name if ":" in name or name.startswith("towpath ") else file + name
        file = file or name[: max(name.rfind(":"), name.rfind(" ")) + 1]


def computed(source: str, value: Callable[[], Values], *places: str) -> Figure:
    """What follows from several values of the code, or from results of benchmarks; the page may round it."""
    return Figure(source, places, value)


def known(source: str, *places: str) -> Figure:
    """A fact that this repository does not decide: of another product, of arithmetic, of an example."""
    return Figure(source, places)


def once(page: str, conditions: str, *texts: str) -> Figure:
    """What was measured when a decision was made, and under which conditions; ` … ` is any text in between."""
    return Figure(f"measured once: {conditions}", tuple(f"{page}: {text}" for text in (conditions, *texts)))


MS, MB = 1e-3, 1 << 20
_SETTINGS = "docs/reference/connectors.md"
_ALERTS = "towpath/stack/monitoring/alerts.yaml"


def _alert(name: str, *places: str) -> Figure:
    """How long an alert's condition must hold."""
    return code(f"{_ALERTS}:/alert: {name}\\n(?:.*\\n)+?  +for: (\\w+)/", *places)


_DOCUMENTS, _CPU = "documents/s", "CPU µs/document"
_TOOLS = "mongodump to mongorestore"
_PLUGINS = ("towpath", "towpath of e71c1ce")
_CUTOVERS = ("towpath", "towpath, 1,000 writes/s")


def _load(part: int) -> tuple[float, ...]:
    """A row of the table `Against mongodump and mongorestore`."""
    towpath, tools = (median("load", part, side, _DOCUMENTS) for side in ("towpath", _TOOLS))
    return towpath, tools, towpath / tools, *(median("load", part, s, f"in all: {_CPU}") for s in ("towpath", _TOOLS))


def _backlog() -> tuple[float, ...]:
    """CPU of a change; what twice the older plugin's rate leaves, and what others need; Connect's, before and now."""
    names = ("in all", "destination-0", "connect-0", "source-0", "kafka")
    used = [median("backlog", 0, _PLUGINS[0], f"{name}: CPU µs/change") for name in names]
    twice = 2 * median("backlog", 0, _PLUGINS[1], "changes/s")
    others = used[1] + used[3] + used[4]
    before = median("backlog", 0, _PLUGINS[1], "connect-0: CPU µs/change")
    return used[0] * 1e-6, *used[1:], 2 / twice, others, before, used[2]


def _remembered(elements: int = 0) -> float:
    """Bytes that an array of one document takes in the splice cache."""
    overhead = sum(value(f"{name}.java:OVERHEAD") for name in ("ArrayCache", "DocumentArrays", "ElementHashes"))
    return overhead + elements * value("ElementHasher.java:BYTES") / 2


def _pause(which: str) -> float:
    """Seconds between two restarts of `towpath run`."""
    return value(f"towpath/supervisor/supervisor.py:_{which}_PAUSE")


def _tries() -> float:
    """Seconds that the reads of a difference take."""
    first, factor, tries = (value(f"towpath verify --{name}") for name in ("first", "factor", "tries"))
    return sum(first * factor**i for i in range(int(tries)))


def _default(benchmark: str, *options: str) -> tuple[float, ...]:
    return tuple(float(BENCHES[benchmark].options[name]) for name in options)


def _held() -> tuple[float, ...]:
    """The table of what a sink task holds, and its sum."""
    record, document = value("towpath/kafka/client.py:LARGEST_RECORD"), 16 * MB
    records, batch = value("connectors/configs.py:POLL_RECORDS"), value("towpath/config/schema.py:batch_bytes")
    return record, records, document, batch, batch, 2, record, record + records * document + 2 * batch + 2 * record


_SINK, _SOURCE, _LOG, _RECORD = (f"docs/design/{name}.md" for name in ("sink", "source", "log", "record"))
_VERIFICATION = "docs/design/verification.md"
_BENCHMARKS = "docs/benchmarks/README.md"
_SPLICE_CACHE, _POLLS = "towpath/config/loading.py:_SPLICE_CACHE", "tests/sink/test_large_polls.py"

_SETS = (
    "`documents` | 50,000",
    "`tiny` | 10,000",
    "`mixed` | 300,000",
    "`large` | 1,500,000",
    "`scattered` | 1,000,000",
)

FIGURES: tuple[Figure, ...] = (
    # The source
    code(
        f"{_SETTINGS}:towpath.copy.range.bytes, RangeCutter.java:MAX_RANGES",
        f"{_SOURCE}: about 16 MB, at most 1,024 of",
    ),
    code("RangeCutter.java:FEW", f"{_SOURCE}: Collections of up to 20,000 documents"),
    code(
        "CopyThreads.java:MOST_WAITING_BYTES", f"{_SOURCE}: hold 8 MB at most", f"{_SOURCE}: the 8 MB of waiting pages"
    ),
    code(
        "SnapshotReads.java:BATCHES_BYTES", f"{_SOURCE}: send about 16 MB at once", f"{_SOURCE}: the 16 MB of batches"
    ),
    code("InitialCopy.java:MOST_BYTES", f"{_SOURCE}: one transaction takes about 8 MB of rows"),
    code("OplogWatch.java:NEAR", f"{_SOURCE}: when the copy takes 80 % of what is left"),
    code(
        "RecordIdCutter.java:COMPARED, RISING",
        f"{_SOURCE}: a sample of 1,000 documents, fewer than 95 %",
    ),
    code("NaturalReads.java:SAFE", f"{_SOURCE}: for 80 % of the server's snapshot window"),
    code("PendingKeys.java:CHUNK_KEYS, CHUNK_BYTES", f"{_SOURCE}: at most 1,000 keys or 64 KB"),
    code("PendingKeys.java:OVERHEAD", f"{_SOURCE}: a key takes about 200 bytes"),
    code("OtherTasks.java:PAUSES_A_LOOK", f"{_SOURCE}: at least 20 times as long"),
    code("connectors/source.json:poll.interval.ms", f"{_SOURCE}: | 50 (ours) |"),
    computed("BYTES of ElementHasher.java", lambda: 8 * value("ElementHasher.java:BYTES") / 2, f"{_SOURCE}: 128 bits"),
    computed(
        "ElementHasher.java, ArrayCache.java and the default of splice_cache",
        lambda: (
            *(value("ElementHasher.java:BYTES") / 2, _remembered()),
            *(value(_SPLICE_CACHE), value(_SPLICE_CACHE) / _remembered(1_000), 1_000),
        ),
        f"{_SOURCE}: 16 bytes, and a document some 400 more: 64 MiB are about 4,000 arrays of 1,000 elements",
    ),
    code(
        "DocumentArrays.java:LEAST_BYTES, LEAST_ELEMENTS",
        f"{_SOURCE}: less than 512 bytes or 2 elements",
    ),
    code("ArrayDiff.java:MOST_EDITS", f"{_SOURCE}: more than 250 edits"),
    code(
        "towpath/log/reread_requests.py:MOST_IDS, MOST_BYTES",
        f"{_SOURCE}: at most 1,000 ids or 512 KiB",
    ),
    code(
        "DdlLog.java:MOST, STORED_NS",
        f"{_SOURCE}: (500 at most) and the cluster time up to which it has looked, stored with every find and every"
        " 30 s",
    ),
    code("SchemaOffset.java:MOST_REFILLS", f"{_SOURCE}: the newest 200)"),
    code("SpliceTotals.java:PAUSE_NS", f"{_SOURCE}: every 5 s at most"),
    # The sink
    code(
        f"{_SETTINGS}:towpath.refused.percent",
        f"{_SINK}: refuses more than 1 % of the records",
        f"{_SINK}: the limit of 1 %",
        "docs/concepts/guarantees.md: refuses more than 1 % of the records",
        "docs/runbooks.md: refuses more than 1 % of the records",
        unit=0.01,
    ),
    code("ChangeStore.java:KEPT", f"{_SINK}: the 500 newest that are over"),
    code("WriteCommand.java:MOST_BYTES", f"{_SINK}: commands of 2 MB"),
    code("Waves.java:SMALLEST", f"{_SINK}: smaller than 16 writes"),
    code(
        "connectors/sink.json:consumer.override.fetch.max.bytes",
        f"{_SINK}: one fetch brought (4 MB as it lies",
        f"{_SINK}: of each broker: 4 MB,",
    ),
    code("connectors/configs.py:POLL_RECORDS", f"{_SINK}: polls are small (4 records)"),
    code("towpath/kafka/client.py:LARGEST_RECORD", "docs/how-to/recover.md: 17 MiB"),
    computed(
        "what a poll, a batch and a record may hold",
        _held,
        f"{_SINK}: one larger record | 17 MB | | one poll | 4 × 16 MB | | the polls before it that a transaction takes"
        " | 16 MB | | what these are folded to | 16 MB | | the command, and the driver's message | 2 × 17 MB | That is"
        " 150 MB",
    ),
    code(f"{_SETTINGS}:towpath.batch.records", f"{_SINK}: or 50,000 small records"),
    computed(
        "tests/sink/test_large_polls.py",
        lambda: (
            value(f"{_POLLS}:_COMPRESSIBLE") + value(f"{_POLLS}:_RANDOM"),
            16 * MB,
            value(f"{_POLLS}:_COMPRESSIBLE"),
        ),
        f"{_SINK}: 72 documents of 16 MB, 48 of them",
    ),
    code(
        "towpath/stack/options.py:connect_heap_mb",
        f"{_SINK}: the embedded worker's heap of 1 GB",
        f"{_BENCHMARKS}: the worker has a heap of 1 GB",
        unit=MB,
    ),
    code(
        "connectors/sink.json:consumer.override.heartbeat.interval.ms",
        f"{_SINK}: consumers send one every 0.5 s",
        unit=MS,
    ),
    code("fold/Elements.java:MOST_KEPT", f"{_SINK}: that a splice opens (100,000 elements)"),
    code("StretchSize.java:SLOW_NS", f"{_SINK}: longer than 15 s"),
    code(f"{_SETTINGS}:towpath.retry.timeout.ms", f"{_SINK}: Retries go on for 30 s", unit=MS),
    code("Fold.java:MOST_PLACES, MOST_BYTES", f"{_SINK}: at most 1,000 places and 8 MB"),
    computed(
        "FolderServerTest.java",
        lambda: (
            value("FolderServerTest.java:DOCUMENTS") * value('FolderServerTest.java:/"TOWPATH_TEST_ROUNDS", "(\\d+)"/')
        ),
        f"{_SINK}: 10,000 histories",
    ),
    code("Barriers.java:LOOK_MS", f"{_SINK}: every 200 ms", unit=MS),
    code("sink/ddl/SchemaChanges.java:THREADS", f"{_SINK}: Up to 16 changes"),
    code(
        "sink/ddl/SchemaChanges.java:AGAIN_NS",
        f"{_SINK}: tried again every 30 s",
        "docs/how-to/schema-changes.md: tried again every 30 s",
    ),
    code(f"{_SETTINGS}:towpath.silence.ms", f"{_SINK}: after 10 s of silence", unit=MS),
    code(
        "SilentServers.java:PATIENCE_S", f"{_SINK}: said nothing for 3 s", "docs/limits.md: its connections 3 s after"
    ),
    # The log
    code("towpath/compaction/service.py:MOST_DIRTY", f"{_LOG}: more than 200,000 dirty keys"),
    code("towpath/log/unprotected.py:_BATCH_DOCUMENTS", f"{_LOG}: 10,000 at a time"),
    code("towpath/log/changed_keys.py:_SECTION", f"{_LOG}: 100,000 offsets at a time"),
    computed(
        "docs/benchmarks/replay.json",
        lambda: share("replay", 0, "towpath replay", "towpath", f"connect-0: {_CPU}"),
        f"{_LOG}: 60 % of the worker's CPU",
    ),
    computed(
        "what the defaults of compaction_lag, compact's rounds and the cleaner add up to",
        lambda: (
            2 * value("towpath/config/schema.py:compaction_lag")
            + value("towpath/compaction/preconditions.py:_HOUR") * MS
        ),
        "docs/how-to/small-log.md: add up to 49 hours",
    ),
    # The verifier
    code("towpath/log/lag.py:_COUNTED_BYTES", f"{_VERIFICATION}: up to 2 MiB of a partition"),
    code("verifier/merge.py:_BLOCK", f"{_VERIFICATION}: blocks of 256 KiB"),
    code("verifier/hashes.py:_PARTS, _NAMED", f"{_VERIFICATION}: in 16 by `$bucketAuto`, down to 1,000 documents"),
    code(
        "connectors/source.json:heartbeat.interval.ms, cursor.max.await.time.ms",
        f"{_VERIFICATION}: (`heartbeat.interval.ms` 150, `cursor.max.await.time.ms` 200)",
    ),
    code("towpath/verification/follower.py:_RECHECK_S", f"{_VERIFICATION}: seen within 30 s"),
    code("Heartbeats.java:SIGN_OF_LIFE", f"{_VERIFICATION}: emitted once in 10 s"),
    computed(
        "docs/benchmarks/indexes.json",
        lambda: (
            goal("indexes", "time until all is there: indexes before the copy, against after it"),
            goal("indexes", "destination's CPU: indexes before the copy, against after it"),
            *(option("indexes", "documents"), 1024),
        ),
        f"{_VERIFICATION}: took 1.75 times as long and 4.4 times the destination's CPU"
        " (`scripts/bench indexes`, 100,000 documents of 1 KB",
    ),
    code(
        "tests/verification/test_verify_lost_server.py:/most\\[0\\] < (.*)/",
        "docs/how-to/verify.md: under 300 MB",
        "docs/verifier.md: under 300 MB",
    ),
    code(
        "towpath verify --first, --tries",
        "docs/how-to/verify.md: re-read: 0.5 s, each twice as long as the last, 6 times",
    ),
    code(
        "towpath verify --first, --factor, --jitter, --tries",
        "docs/verifier.md: `first` (0.5) before the first re-read, each further pause `factor` (2.0) times as long,"
        " varied at random by up to the fraction `jitter` (0.1) of itself, for `tries` (6) reads",
    ),
    code("towpath verify --patience", "docs/how-to/verify.md: the pipeline: 300 s", "docs/verifier.md: (300 seconds)"),
    computed("the defaults of `towpath verify`", _tries, "docs/verifier.md: (31.5 s by default)"),
    code("verifier/verification.py:lost_for", "docs/verifier.md: | `lost_for` | 60.0 |"),
    code("towpath verify --lost-for", "docs/how-to/verify.md: may be unavailable: 60 s"),
    code("verifier/ranges.py:RANGE_BYTES", "docs/verifier.md: | 33554432", "docs/verifier.md: (32 MiB)"),
    code(
        "verifier/verification.py:_HELD, _HELD_BYTES",
        "docs/verifier.md: 100,000 of them, or 64 MiB",
    ),
    code("verifier/values.py:_PATHS", "docs/verifier.md: the first 20 paths"),
    code("towpath/verification/run.py:_EXAMPLES", "docs/how-to/verify.md: the first 50 differences"),
    computed(
        "docs/benchmarks/verify.json",
        lambda: tuple(
            median("verify", 0, side, "through the servers' sockets B/document")
            for side in ("towpath --screen", "towpath")
        ),
        "docs/how-to/verify.md: 0.51 bytes a document through the servers' sockets, against 1,775",
    ),
    computed(
        "docs/benchmarks/verify.json",
        lambda: median("verify", 0, "towpath", _DOCUMENTS),
        "docs/how-to/verify.md: about 138,000 equal documents",
    ),
    # The tool
    code(
        "towpath/preflight/connect.py:_LEAST_HEAP_MB",
        "docs/errors.md: need (1 GB",
        "docs/how-to/connect-cluster.md: at least 1 GB",
        unit=MB,
    ),
    code("towpath/preflight/connect.py:_USUAL_CACHE_MB", "docs/errors.md: above 64 MiB", unit=MB),
    code("towpath cutover --last", "docs/how-to/cutover.md: the newest 500,000 records"),
    code("towpath cutover --max-pause", "docs/how-to/cutover.md: at most 30 s (`--max-pause`"),
    code(
        "towpath repair --timeout, towpath/repair/rereads.py:_DOCUMENTS",
        "docs/how-to/verify.md: `--timeout` (300 s) limits the time for a batch of 20,000",
    ),
    code("towpath/replay/verdict.py:_IN_JSON", "docs/json.md: the first 1,000 of them"),
    code("towpath/planning/gather.py:_ENTRIES", "docs/how-to/plan.md: the newest 50,000 entries"),
    computed(
        "towpath/supervisor/supervisor.py",
        lambda: (_pause("FIRST"), 2 * _pause("FIRST"), _pause("LONGEST"), _pause("FIRST")),
        "docs/how-to/replicate.md: after 2 s, 4 s, … up to 5 min, and after 2 s again",
    ),
    code(
        "towpath/status/figures.py:RATE_WINDOW",
        "docs/json.md: the last 10 seconds",
        "docs/metrics.md: the last 10 seconds",
    ),
    code("towpath/log/dead_letters.py:NEWEST", "docs/metrics.md: the newest 1,000 dead letters"),
    known("an example", "docs/metrics.md: 99 % of them"),
    known("what pip installs, without byte code", "docs/releasing.md: They take 1.4 MB of 49 MB"),
    computed(
        "towpath/bookkeeping/positions.py:TRANSACTION_BOUNDS_MS",
        lambda: tuple(ms * MS for ms in TRANSACTION_BOUNDS_MS),
        "docs/metrics.md: 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10 and 60 seconds",
    ),
    code("towpath/monitor/server.py:_STALE", "docs/monitoring.md: looked at within 30 s"),
    code("towpath/cli/monitor.py:_READY_LAG", "docs/monitoring.md: `--ready-lag` seconds (60)"),
    code("towpath/monitor/updates.py:MOST_CLIENTS", "docs/monitoring.md: At most 200 clients"),
    code("towpath/monitor/connections.py:MOST_CONNECTIONS", "docs/monitoring.md: connections beyond 400"),
    code("towpath/monitor/connections.py:UNREAD_SECONDS", "docs/monitoring.md: reads nothing for 30 s"),
    code(
        "towpath/monitor/access.py:LONGEST_BODY, towpath/monitor/connections.py:REQUEST_SECONDS",
        "docs/monitoring.md: at most 16 KiB and come whole within 10 s",
    ),
    computed(
        "docs/benchmarks/page.json",
        lambda: option("page", "clients"),
        "docs/monitoring.md: 50 clients cost",
        f"{_BENCHMARKS}: then with 50 clients",
    ),
    computed(
        "docs/benchmarks/page.json",
        lambda: goal("page", "CPU that 50 clients take") / 100,
        "docs/monitoring.md: less than 1 % of a core",
    ),
    code('towpath/stack/prometheus.py:/interval: str = (".*?")/', "docs/prometheus.md: every 5 seconds"),
    code(f"{_ALERTS}:/towpath_lag_seconds > (\\d+)/", "docs/runbooks.md: more than 5 minutes behind"),
    code(f"{_ALERTS}:/oplog_remaining_seconds\\) < (\\d+)/", "docs/runbooks.md: less than 6 hours"),
    _alert("TowpathScrapeDown", "docs/runbooks.md: cannot read `towpath run` or a worker | 2 min |"),
    _alert("TowpathStateUnknown", "docs/runbooks.md: does not answer `towpath` | 2 min |"),
    _alert("TowpathTroubles", "docs/runbooks.md: another part cannot be read | 5 min |"),
    _alert("TowpathMissing", "docs/runbooks.md: a connector is not deployed | 2 min |"),
    _alert("TowpathTaskFailed", "docs/runbooks.md: fails again and again | 2 min |"),
    _alert("TowpathLagging", "docs/runbooks.md: minutes behind | 5 min |"),
    _alert("TowpathOplogShort", "docs/runbooks.md: the copy still takes | 5 min |"),
    _alert("TowpathDeadLetters", "docs/runbooks.md: refuses documents | 5 min |"),
    _alert("TowpathDdlWaiting", "docs/runbooks.md: wait for somebody | 5 min |"),
    _alert("TowpathDifferences", "docs/runbooks.md: found differences | 1 min |"),
    _alert("TowpathVerdictOld", "docs/runbooks.md: for a week, or never | 1 h |"),
    _alert("TowpathCompactionUnprotected", "docs/runbooks.md: what the log needs | 10 min |"),
    # Benchmarks
    computed(
        "docs/benchmarks/arrays.json",
        lambda: share("arrays", 0, "stock", "towpath", "serialized record B/push"),
        "ARCHITECTURE.md: 1,660 times the serialized bytes",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: tuple(of(row[i] / row[i + 1] for row in map(_load, range(3))) for i in (0, 3) for of in (min, max)),
        "docs/comparison.md: between 1.09 and 1.30 times as many documents a second as `mongodump` piped into"
        " `mongorestore`, with 1.11 to 1.38 times the CPU",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: _load(0),
        f"{_BENCHMARKS}: | mixed | 43,000 | 39,400 | 1.09 × | 42.1 | 30.6 |",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: _load(1),
        f"{_BENCHMARKS}: | large | 37,000 | 28,600 | 1.30 × | 50.4 | 42.8 |",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: _load(2),
        f"{_BENCHMARKS}: | scattered | 28,100 | 23,800 | 1.18 × | 67.7 | 61.1 |",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: (_load(1)[0] * _load(1)[3] * 1e-6, _load(1)[3] * 1e-6, _load(1)[0], _load(1)[1] * _load(1)[4] * 1e-6),
        f"{_BENCHMARKS}: 1.9 of the two cores (50.4 µs × 37,000), the tools 1.2",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: (
            _load(1)[3] * 1e-6,
            *(
                median("load", 1, side, f"{process}: {_CPU}")
                for side, process in (("towpath", "destination-0"), (_TOOLS, "destination-0"))
            ),
            *(median("load", 1, "towpath", f"{process}: {_CPU}") for process in ("connect-0", "kafka", "source-0")),
        ),
        f"{_BENCHMARKS}: Of the 50.4 µs, the destination uses 24.3 (19.9 with mongorestore), Connect 19.3,"
        " Kafka 4.2 and the source 3.2",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: tuple(
            goal("load", f"first load on a worker that has just started, {of}")
            for of in ("mixed", "large", "scattered")
        ),
        f"{_BENCHMARKS}: 28,700, 27,900 and 19,900 documents/s",
    ),
    computed(
        "docs/benchmarks/load.json",
        lambda: (
            median("load", 1, "towpath", f"steady: {_DOCUMENTS}"),
            median("load", 1, "towpath", f"steady: {_DOCUMENTS}") / _load(1)[1],
            _load(1)[0],
        ),
        f"{_BENCHMARKS}: the steady state is 43,100 documents/s, 1.5 × the tools, and the whole load 37,000",
    ),
    computed(
        "docs/benchmarks/backlog.json",
        lambda: (*(median("backlog", 0, side, "changes/s") for side in _PLUGINS), *_backlog()),
        f"{_BENCHMARKS}: 16,200 changes/s, and 11,400 with … of 123 µs a change, the destination uses 46.8, Connect"
        " 43.6, the source 22.2 and Kafka 10.7. Twice the rate of that plugin would leave 87.4 µs, of which the others"
        " need 79.6 … it has come from 76.5 to 43.6",
    ),
    computed(
        "docs/benchmarks/cutover.json",
        lambda: (
            *(median("cutover", 0, side, "pause s") for side in _CUTOVERS),
            option("cutover", "writes"),
            *(median("cutover", 0, side, "beginning the way back s") for side in _CUTOVERS),
        ),
        "docs/design/cutover.md: 1.5 s with nobody writing, and 2.1 s with 1,000 writes a second until it began;"
        " 0.6 to 0.7 s",
    ),
    code("connectors/source.json:producer.override.batch.size", f"{_BENCHMARKS}: batches of 128 KB"),
    code("connectors/source.json:producer.override.linger.ms", f"{_BENCHMARKS}: 5 ms", unit=MS),
    code("tests/bench/load.py:/About (.*) KB of mixed types/", f"{_BENCHMARKS}: of 0.9 KB", unit=1024),
    code("towpath/stack/options.py:mongod_cache_gb", f"{_BENCHMARKS}: a cache of 0.5 GB", unit=1 << 30),
    computed(
        "the defaults of `scripts/bench arrays`",
        lambda: (READING, *_default("arrays", "length", "cap"), value("tests/bench/arrays.py:_FULL")),
        f"{_BENCHMARKS}: readings of 100 bytes into documents of 1,800: a backlog, and at a pace; into arrays capped at"
        " 1,000, with splices and without; a document that grows to 3,600",
    ),
    *(
        computed(
            "the defaults of `scripts/bench load`",
            partial(_default, "load", row.split("`")[1]),
            f"{_BENCHMARKS}: {row}",
        )
        for row in _SETS
    ),
    computed(
        "the defaults of `scripts/bench load`",
        lambda: _default("load", "mixed")[0] / 3,
        f"{_BENCHMARKS}: and 100,000 as in `tiny`",
    ),
    computed("docs/benchmarks/lag.json", lambda: option("lag", "rate"), f"{_BENCHMARKS}: 5,000 a second for a minute"),
    computed("docs/benchmarks/lag.json", lambda: option("lag", "rate"), f"{_BENCHMARKS}: At 5,000 changes a second"),
    computed(
        "_TICK of tests/bench/streaming.py",
        lambda: 1 / value("tests/bench/streaming.py:_TICK"),
        f"{_BENCHMARKS}: 50 markers a second",
    ),
    # Facts of other products, arithmetic, examples
    known(
        "MongoDB: a document has at most 16 MB, and so has an event (BSONObjMaxUserSize, BSONObjectTooLarge)",
        f"{_SINK}: a record can have 16 MB",
        f"{_SOURCE}: One above 16 MB (error 10334)",
        f"{_BENCHMARKS}: documents of 16 MB",
        "docs/errors.md: documents of 16 MB",
        "docs/findings.md: One above 16 MB (error 10334)",
        "docs/how-to/verify.md: documents of 16 MB",
        "docs/limits.md: than the server can send (16 MB",
        "docs/reference/servers.md: more than 16 MB",
        "docs/reference/servers.md: above 16 MB",
        "docs/verifier.md: documents of 16 MB",
    ),
    known(
        "MongoDB: the default of minSnapshotHistoryWindowInSeconds",
        f"{_SOURCE}: the server's snapshot window (300 s)",
        "docs/limits.md: (`minSnapshotHistoryWindowInSeconds`, 300 s)",
    ),
    known(
        "MongoDB: the default of periodicNoopIntervalSecs",
        "docs/reference/roles.md: up to 10 s (`periodicNoopIntervalSecs`)",
    ),
    known(
        "MongoDB: decimal128 and $toHashedIndexKey",
        f"{_RECORD}: 34 digits",
        "docs/findings.md: 34 digits",
        "docs/findings.md: 64 bits",
        "docs/how-to/verify.md: 64 bits",
    ),
    known(
        "Kafka: the defaults of session.timeout.ms and heartbeat.interval.ms",
        f"{_SINK}: Kafka's default of 45 s",
        f"{_SINK}: with Kafka's default of 3 s",
        f"{_SINK}: heartbeat interval (3 s)",
    ),
    known("Kafka: the default of broker.session.timeout.ms", "docs/how-to/recover.md: past its session, 9 s"),
    known("Kafka: the default of request.timeout.ms", "docs/limits.md: 30 s each (`request.timeout.ms`)"),
    known(
        "Kafka: the defaults of log.cleaner.backoff.ms and segment.bytes",
        "docs/how-to/small-log.md: `log.cleaner.backoff.ms`, 15 s",
        "docs/how-to/small-log.md: one segment (1 GB",
    ),
    known("Kafka: the default of max.request.size", f"{_BENCHMARKS}: records of up to 1 MB"),
    known(
        "Debezium: the defaults of max.batch.size and poll.interval.ms",
        f"{_SOURCE}: (2,048 events)",
        f"{_SOURCE}: default of 500 ms",
    ),
    known(
        "mongosync: its documentation, source 3 of the page",
        "docs/comparison.md: 10 GB of memory and 0.5 GB per million documents",
    ),
    known("an example, multiplied", f"{_SOURCE}: 1,000 readings of 100 bytes then costs 100 KB"),
    known("the two that the sentence goes on to name", "docs/how-to/small-log.md: gone 2 × `compaction_lag`"),
    known("the size of the benchmark's documents", "docs/how-to/verify.md: documents of 1 KB"),
    known(
        "an estimate of a reader's time",
        "README.md: 15 minutes",
        "docs/README.md: 15 minutes",
        "docs/tutorial.md: 15 minutes",
    ),
    # Measured once
    once(
        "docs/tutorial.md",
        "MongoDB's server (42 MB)",
        "are in the release (59 MB and 28 MB)",
        "gets 82 MB of jars",
    ),
    once("docs/how-to/cutover.md", "200,000 documents on two cores"),
    once(
        _BENCHMARKS,
        "1,500,000 documents of 0.9 KB, heap 1 GB, two cores",
        "| `-XX:+UseSerialGC` | 34,900 … 5.4 and 0 s |",
    ),
    once(_BENCHMARKS, "1,000,000 documents of 0.9 KB, the third load of a worker", "| 57,600 … 34.1 |"),
    computed(
        "docs/benchmarks/lag.json",
        lambda: (
            median("lag", 0, "towpath at 5,000/s, warm", "in all: CPU µs/change") * 1e-6,
            option("lag", "rate") * median("lag", 0, "towpath at 5,000/s, warm", "in all: CPU µs/change") * 1e-6,
            median("lag", 0, "towpath at 5,000/s, warm", "lag p99, ms") * 1e-3,
            median("lag", 2, "towpath wait", "seconds"),
            goal("lag", "slowest of 5 runs of `towpath wait` on an idle pipeline"),
        ),
        f"{_BENCHMARKS}: together use 309 µs of CPU a change, 1.5 of the two cores … is 368 ms … takes 0.86 s in"
        " the median, and 1.16 s",
    ),
    once(_BENCHMARKS, "an Intel Xeon of 2.8 GHz", "takes 1.3 to 1.8 times the processor time"),
    once(_BENCHMARKS, "it was 876 ms there (338 µs)", "on the EPYC 179 ms (257 µs)", "(1.02 and 1.11 s with"),
    once(_BENCHMARKS, "In 15 pairs on that Xeon … that run)", "needs 0.31 s … applied 0.07 s"),
    code("connectors/source.json:cursor.max.await.time.ms", f"{_BENCHMARKS}: up to 0.2 s", unit=MS),
    once(_BENCHMARKS, "On three earlier days", "*mixed* 0.92 … 1.28 ×"),
    once("docs/design/cutover.md", "At a load average of 16 to 35 it was up to 5.8 s"),
    once(
        _LOG,
        "3 µs of CPU per record and pass (records of 1 KB, 400,000 of them)",
        "500,000 records of 1 KB are read in 15 s on two cores",
    ),
    once(_SINK, "13 µs a push in merges of 100, 33 µs in merges of 1,000 (arrays of 1,800)"),
    once(_SINK, "takes some 20 bytes for each element: 2 MB for"),
    once(_SINK, "(tried with 6.0.5)"),
    once(_SINK, "That costs 65 µs a write … (1,080 µs)"),
    once(_SINK, "the second task of a new sink got its partitions 3.2 s after the first"),
    once(_SINK, "On documents of 700 bytes … the pipeline 184 µs"),
    once(
        _SINK,
        "With polls of 10 records the large documents did not fit",
        "Recovery took 115 s when the sink waited for two minutes",
        "a document of 15 MB does that",
        "from 0.4 to 2.9 s in the 20 s after a deployment",
    ),
    once(_SINK, "about 10 s more for that, by mongod's own limits, and 20 s … (seen once: records flowed 14 s after"),
    once(_SOURCE, "1,000,000 documents of 0.9 KB … 2 busy cores", "| the reads alone … 85 µs a document |"),
    once(_SOURCE, "1 to 157 ms (half of them up to 37) while two tasks copied"),
    once(_SOURCE, "300,000 documents of 0.88 KB, two workers with a heap of 1 GB each", "| 1 | 7,100; … 60.6 |"),
    once(_SOURCE, "17 to 25 µs of its CPU a document here"),
    once(_SOURCE, "At 2,000 changes a second", "383–494 ms … | 10 | 30 ms |"),
    once(
        _SOURCE,
        "4 to 6 ms on a machine with two cores",
        "rose from 55–58 ms … at 5,000 changes/s), as did the worker's",
    ),
    once(
        _VERIFICATION,
        "On one machine, beside other work, a document of 1 KB took 2.7 µs … 20,000 documents read ten times",
        "as long as comparing 100,000 documents",
        "300,000 documents of 1 KB … 2.9 s before (medians of four runs each in turn, beside other work)",
    ),
)
