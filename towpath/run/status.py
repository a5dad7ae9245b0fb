"""Reads the status of a pipeline from Connect, Kafka and both clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from towpath.checks import capture
from towpath.checks.kafka import guard
from towpath.clients.connect.control import statuses
from towpath.clients.connect.rest import Connector
from towpath.clients.kafka.topics import Place, Topic
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet, clocks
from towpath.config.namespaces import namespace_of, topic_of
from towpath.config.pipeline import Log, Pipeline
from towpath.deploy import schema_changes as changes
from towpath.deploy.schema_changes import SchemaChanges
from towpath.errors import MongoError, MongoUnreachable, NoSuchConnector, TowpathError
from towpath.history import rebuild
from towpath.history.plan import Replay, find_all
from towpath.history.plan import change_topics as replayed_topics
from towpath.history.unprotected import Summary, summary
from towpath.log import bounds, dead_letters, reread_requests, source_offsets
from towpath.log.bounds import Break, LogState, still_in_log
from towpath.log.definitions import SETTINGS, SOURCE_BACK, SOURCE_SET, is_compacted, other_source, pipeline_topics
from towpath.log.lag import change_topics, measure, refuse_hanging_transactions
from towpath.log.source_offsets import SELECTION, CollectionCopy, SourceState, Splices, read_state
from towpath.run.report import (
    RATE_WINDOW,
    Awaiting,
    Copied,
    Copy,
    Lag,
    LoggedChange,
    LogReport,
    Problem,
    Raw,
    Rebuild,
    ReplayState,
    Report,
    TopicLog,
    Waiting,
    unknown,
)
from towpath.session import ERRORS, Session
from towpath.store import cutover as marker
from towpath.store import positions as sink_positions
from towpath.store.cutover import Cutover
from towpath.store.positions import Applied, Counts, TaskState
from towpath.threads import begin

T = TypeVar("T")
S = TypeVar("S")
_CONTROL_RECORD = 1  # offset, of the record that ends the last transaction


class _Gathering:
    """Reads the parts of one status. A part that cannot be read is reported in `errors`; the others are shown."""

    def __init__(self, session: Session) -> None:
        pipeline, topics = session.pipeline, session.topics
        self.session, self.pipeline, self.connect, self.topics = session, pipeline, session.connect, topics
        self.errors: list[Exception] = []
        self.existing: dict[str, Topic] = topics.all()  # first: without Kafka, some requests to Connect block for 90 s
        self.sink = part(self.read_sink, _Sink(), self.errors) if pipeline.exactly_once else self.read_commits()
        # before the ends: Kafka names the partitions' leaders with the ids
        self.ids = part(self.topic_ids, None, self.errors)
        changes = change_topics(pipeline, self.existing)
        requests = [self.existing[name] for name in (pipeline.request_topic,) if name in self.existing]
        self.written = topics.written(changes)
        read = {place: end for place, end in self.written.items() if self.clear(place) >= end}
        self.ends = topics.ends([*changes, *requests], known=read)
        _, self.requested = self.ends.pop((pipeline.request_topic, 0), (0, 0))
        refuse_hanging_transactions(pipeline, topics, self.ends, written=self.written)  # one may block Connect

    def clear(self, place: Place) -> int:
        """The offset up to which the sink has found no more record in a partition; what is open begins behind it."""
        applied = (self.sink.positions or {}).get(place)
        return max(applied.offset, applied.clear) if applied else 0

    def read_commits(self) -> _Sink:
        """In plain mode, the positions are the committed offsets of the sink's consumers."""
        committed = self.topics.committed(self.pipeline.sink_group)
        return _Sink({place: Applied(offset, 0) for place, offset in committed.items()}, changes=SchemaChanges())

    def read_sink(self) -> _Sink:
        pipeline = self.pipeline
        with self.session.destination.briefly() as client:
            return _Sink(
                changes=changes.read(client, pipeline),
                positions=sink_positions.positions(client, pipeline),
                tasks=sink_positions.task_states(client, pipeline),
                cutover=marker.read(client, pipeline),
            )

    def connected(self) -> _Connected:
        """What Connect knows."""
        connectors = tuple(statuses(self.connect, self.pipeline.connectors))
        lacks_reverse_pipeline = marker.lacks_reverse_pipeline(self.session, self.sink.cutover)
        return _Connected(connectors, self.sources(), self.configs(), lacks_reverse_pipeline)

    def sources(self) -> dict[str, SourceState]:
        """Connector → the state that it has committed; an empty state for a connector that does not exist."""
        states = {}
        for name in self.pipeline.source_connectors:
            try:
                states[name] = read_state(self.connect, name)
            except NoSuchConnector:
                states[name] = SourceState(None)
        return states

    def report_sources(self, states: Mapping[str, SourceState]) -> None:
        for name, state in states.items():
            schema = state.schema if self.pipeline.ddl.apply else state.ddl
            reasons = (state.warning, schema.error if schema else "")
            self.errors += [TowpathError(f"{name}: {reason}") for reason in reasons if reason]

    def report_other_source(self, configs: Mapping[str, Mapping[str, str]], source: ReplicaSet) -> None:
        """Report that the source that answers is not the captured one."""
        for mark in dict.fromkeys(config[SOURCE_SET] for config in configs.values() if SOURCE_SET in config):
            if words := other_source(ReplicaSet.parse(mark), source):
                self.errors.append(TowpathError(words, SOURCE_BACK))

    @cached_property
    def source_clocks(self) -> tuple[ClusterTime, float, ReplicaSet] | None:
        """As `clocks` reads them, at most once per status; None while the source does not answer."""

        def read() -> tuple[ClusterTime, float, ReplicaSet] | None:
            with self.session.source.briefly() as client:
                return clocks(client)

        return part(read, None, self.errors)

    def lag(self, capture_seconds: float | None, captured: Sequence[ClusterTime]) -> Lag:
        """`captured`: up to when each source connector has captured; none while that is not known."""
        changes = part(lambda: self.uncaptured(min(captured)), None, self.errors) if captured else None
        if self.sink.positions is None:
            return Lag(None, capture_seconds, capture_changes=changes)
        applied = {place: self.clear(place) for place in self.sink.positions}
        # the source's wall clock; this machine's while the source does not answer
        lag = measure(
            self.topics, self.ends, applied, lambda: self.source_clocks[1] if self.source_clocks else time.time()
        )
        return Lag(lag.records, capture_seconds, round(lag.seconds, 3), changes)

    def uncaptured(self, since: ClusterTime) -> int | None:
        with self.session.source.briefly() as client:
            return capture.changes_after(client, since, self.pipeline.selection)

    def breaks(self) -> tuple[Break, ...] | None:
        """Positions that are not in the log; None during a cutover, and while they are not known."""
        if self.ids is None or self.sink.positions is None:
            return None
        written = {place: (self.ends[place][0], end) for place, end in self.written.items()}
        return bounds.confirmed(self.session, LogState(self.sink.positions, written, self.ids))

    def topic_ids(self) -> Mapping[str, str] | None:
        """Topic → id; None during a cutover, since the sink then stays stopped."""
        if self.sink.cutover is not None or self.sink.positions is None:
            return None
        return self.topics.ids(pipeline_topics(self.pipeline, self.existing))

    def rates(self) -> dict[str, float]:
        """Topic → records per second, including control records of transactions."""
        names, began = {topic for topic, _ in self.ends}, time.time() - RATE_WINDOW
        places = (place for place in self.ends if not self.is_quiet(place, began))
        since = self.topics.offsets_at(dict.fromkeys(places, int(began * 1000)))
        rates = dict.fromkeys(names, 0.0)
        for place, (_, end) in self.ends.items():
            if since.get(place, -1) >= 0:
                rates[place[0]] += (end - since[place]) / RATE_WINDOW
        return rates

    def is_quiet(self, place: Place, since: float) -> bool:
        """Whether the log has certainly had no record in a partition since then (seconds since the epoch)."""
        applied = (self.sink.positions or {}).get(place)
        if applied is None or applied.last_at is None or self.clear(place) < self.ends[place][1]:
            return False
        return applied.last_at.timestamp() < since

    def waiting(self, sources: Mapping[str, SourceState]) -> Iterator[Waiting]:
        for name, state in sources.items():
            upto, reason = (state.requests.next, state.requests.waiting) if state.requests else (0, "")
            first = reread_requests.waiting(self.pipeline, self.topics, name, upto, self.requested)
            if first is not None:
                yield Waiting(name, self.requested - first, reason)

    def configs(self) -> dict[str, dict[str, str]]:
        """The configurations of MongoSource's connectors."""
        names = self.pipeline.source_connectors if self.pipeline.has_own_source else ()
        return {name: self.connect.config(name) or {} for name in names}

    def copies(self, sources: Mapping[str, SourceState], rates: Mapping[str, float]) -> tuple[Copied, ...]:
        """Progress of the copies. Debezium's own copy reports none: the source estimates the number of documents."""
        prefix = self.pipeline.name
        if self.pipeline.has_own_source:
            return copied_by_ranges(prefix, (copy for state in sources.values() for copy in state.copies), rates)
        records: dict[str, int] = {}
        for (topic, _), (first, end) in self.ends.items():
            namespace = namespace_of(prefix, topic)
            records[namespace] = records.get(namespace, 0) + end - first
        by_namespace = {namespace_of(prefix, topic): round(rate, 1) for topic, rate in rates.items()}
        found = []
        with self.session.source.briefly() as client:
            for namespace, documents in sorted(records.items()):
                database, collection = namespace.split(".", 1)
                of, rate = client[database][collection].estimated_document_count(), by_namespace.get(namespace, 0.0)
                found.append(Copied(namespace, min(documents, of), of, records_per_second=rate))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Connected:
    connectors: tuple[Connector, ...]
    sources: Mapping[str, SourceState]
    configs: Mapping[str, Mapping[str, str]]
    lacks_reverse_pipeline: bool


@dataclass(frozen=True, slots=True)
class _Sink:
    """What the destination keeps of the sink; nothing is known while it is down."""

    positions: Mapping[Place, Applied] | None = None
    tasks: tuple[TaskState, ...] = ()
    cutover: Cutover | None = None
    changes: SchemaChanges | None = None


def part(read: Callable[[], T], otherwise: S, failures: list[Exception]) -> T | S:
    """What is read; `otherwise` if that fails."""
    try:
        return read()
    except ERRORS as error:
        failures.append(error)
        return otherwise


def read_status(session: Session) -> Report:
    """The report without what takes longer: the log's topics, replays, verdicts, and the schema changes to be made.

    Raises when Connect or Kafka does not answer; a cluster's failure is reported in `errors`.
    """
    pipeline, found = session.pipeline, _Gathering(session)
    answer = begin(found.connected, "Connect")  # a worker takes its time, with which Kafka has nothing to do
    rates, sink, from_kafka = found.rates(), found.sink, list[Exception]()
    letters = part(lambda: dead_letters.summarize(pipeline, session.topics, found.existing), None, from_kafka)
    breaks = part(found.breaks, None, from_kafka)
    from_connect = answer.result()
    connectors, sources, configs = from_connect.connectors, from_connect.sources, from_connect.configs
    idle = left_stopped(pipeline, sink.cutover)
    state = state_of(connectors, idle)
    found.errors += [_must_stop(session, one, idle) for one in connectors if one.name in idle and _is_up(one)]
    found.report_sources(sources)
    found.errors += from_kafka
    # the stream has none before the first round of a copy ends, and Debezium's is no lag while that copies
    positions = [source.position for source in sources.values() if source.position]
    times = [position.time for position in positions if not position.snapshot_running]
    needed = [source.position.time if source.position else source.start for source in sources.values()]
    answered = found.source_clocks if any(needed) else None
    now = answered[0] if answered else None
    if answered:
        found.report_other_source(configs, answered[2])
    is_streaming = all(map(_is_streaming, sources.values()))
    is_copied = is_streaming and not any(_has_to_copy(one, configs.get(name, {})) for name, one in sources.items())
    has_copies = not is_copied and state != "missing"
    epochs: dict[str, dict[int, int]] = {}
    for (topic, partition), position in sorted((sink.positions or {}).items()):
        if pipeline.exactly_once:
            epochs.setdefault(topic, {})[partition] = position.epoch
    return replace(
        unknown(session),
        state=state,
        at=round(time.time(), 3),
        copy=Copy(
            is_copied,
            part(lambda: found.copies(sources, rates), (), found.errors) if has_copies else (),
            awaiting_stream(copy for source in sources.values() for copy in source.held),
            max((source.round for source in sources.values() if source.is_initial), default=None),
        ),
        lag=found.lag(behind(now, times), [time for time in times if time] if now else []),
        records_per_second=round(sum(rates.values()), 1),
        dead_letters=letters.count if letters else None,
        dead_letters_complete=letters is not None and letters.complete,
        dead_letter_causes=letters.causes if letters else (),
        splices=sum((source.splices for source in sources.values()), Splices()),
        requests_waiting=tuple(found.waiting(sources)),
        requests_skipped=sum(source.requests.skipped for source in sources.values() if source.requests),
        sink=None if sink.positions is None else sum((task.counts for task in sink.tasks), Counts()),
        sink_tasks=sink.tasks,
        epochs=epochs,
        connectors=connectors,
        cutover=sink.cutover,
        log_breaks=breaks,
        schema_changes=None
        if sink.changes is None
        else tuple(LoggedChange(**one) for one in sink.changes.as_json(session.file)),
        raw=Raw(
            ends=found.ends,
            sources=sources,
            configs=configs,
            topic_ids=found.ids,
            ddl=source_offsets.in_order(source.ddl for source in sources.values() if source.ddl),
            changes=sink.changes,
            letters=letters.examples if letters else (),
            uncaptured_seconds=behind(now, needed),
            idle="" if state == "running" else part(lambda: marker.why_idle(session), "", found.errors),
            lacks_reverse_pipeline=from_connect.lacks_reverse_pipeline,
        ),
        errors=tuple(map(Problem.of, found.errors)),
    )


def left_stopped(pipeline: Pipeline, cutover: Cutover | None) -> tuple[str, ...]:
    """The connectors that a cutover has stopped, and that must stay so; none unless the destination is primary."""
    if cutover is None or cutover.state != "destination primary":
        return ()
    return pipeline.connectors if cutover.is_takeover else (pipeline.sink_connector,)


def _is_up(connector: Connector) -> bool:
    """Whether someone has started or paused a connector that a cutover has stopped."""
    return connector.state not in ("STOPPED", "MISSING")


def _must_stop(session: Session, connector: Connector, idle: Collection[str]) -> TowpathError:
    stop = f"curl -X PUT {session.connect.url}/connectors/{connector.name}/stop"
    return TowpathError(
        f"{connector.name} is {connector.state}, and must stay stopped: the destination is primary",
        stop if len(idle) > 1 else f"`towpath resume {session.file}` stops it, and leaves the capture running",
    )


def state_of(connectors: Iterable[Connector], idle: Collection[str] = ()) -> str:
    """The pipeline's state, from those of its connectors and their tasks. `idle`: those that a cutover has stopped."""
    due = [one for one in connectors if one.name not in idle or one.state != "STOPPED"]
    states = {connector.state for connector in due} | {task.state for connector in due for task in connector.tasks}
    for state in ("MISSING", "FAILED", "STOPPED", "PAUSED"):
        if state in states:
            return state.lower()
    if not all(connector.running for connector in due):
        return "starting"
    if not idle:
        return "running"
    return "failed" if any(one.name in idle for one in due) else "destination primary"


def _is_streaming(state: SourceState) -> bool:
    """Whether the initial copy is done and the stream has started."""
    if state.position is None:  # a stream that has only just started, where nothing was to be copied
        return state.start is not None and state.phase == "stream"
    return not state.position.snapshot_running and not state.is_initial


def _has_to_copy(state: SourceState, config: Mapping[str, str]) -> bool:
    """Whether a copy runs, or the connector has been given collections that it has not started to copy."""
    return bool(state.copying) or state.selection != config.get(SELECTION, state.selection)


def behind(now: ClusterTime | None, times: Iterable[ClusterTime | None]) -> float | None:
    """Seconds by which the earliest of these times is behind the source's; None if that is not known."""
    seconds = [time.seconds for time in times if time]
    if not seconds:
        return 0.0
    # both are whole seconds, and the stream of an idle source moves only with its next no-op
    return None if now is None else float(max(0, now.seconds - min(seconds) - 1))


def copied_by_ranges(prefix: str, copies: Iterable[CollectionCopy], rates: Mapping[str, float]) -> tuple[Copied, ...]:
    """`rates`: topic → records per second."""
    return tuple(
        Copied(
            namespace=copy.namespace,
            documents=copy.rows,
            estimated_documents=max(copy.documents, copy.rows),
            bytes=copy.bytes_read,
            estimated_bytes=max(copy.bytes, copy.bytes_read),
            ranges=copy.planned,
            done_ranges=copy.ranges_done,
            records_per_second=round(rates.get(topic_of(prefix, copy.namespace), 0.0), 1),
            retries=copy.retries,
            reason=copy.reason,
            pending_documents=copy.pending,
        )
        for copy in copies
    )


def awaiting_stream(copies: Iterable[CollectionCopy]) -> tuple[Awaiting, ...]:
    return tuple(Awaiting(copy.namespace, str(copy.time)) for copy in copies if copy.time is not None)


def read_log(session: Session, raw: Raw) -> LogReport:
    """The log now, and its risks."""
    pipeline, topics, ends = session.pipeline, session.topics, raw.ends
    names, sizes = sorted({topic for topic, _ in ends}), topics.bytes_on_disk()
    settings = topics.settings_of_all(names, SETTINGS)
    committed = topics.committed_with_metadata(pipeline.compaction_group) if pipeline.log.compact else {}
    reports = {place: (offset, report) for place, (offset, words) in committed.items() if (report := summary(words))}
    by_topic: dict[str, dict[Place, tuple[int, int]]] = {name: {} for name in names}
    for place, partition in ends.items():
        by_topic[place[0]][place] = partition
    logs = tuple(_topic(pipeline, name, by_topic[name], settings[name], reports, sizes) for name in names)
    risks = [
        f"{log.namespace}: {found.finding}; {found.advice}"
        for log in logs
        for found in guard(settings[log.topic], log.begins, pipeline)
    ]
    late = unprotected(pipeline.log, logs) if pipeline.log.compact else ()
    return LogReport(logs, (*late, *risks, *capture.warnings(session, raw.sources, raw.configs)))


def _topic(
    pipeline: Pipeline,
    name: str,
    partitions: Mapping[Place, tuple[int, int]],
    settings: Mapping[str, str],
    reports: Mapping[Place, tuple[int, Summary]],
    sizes: Mapping[str, int] | None,
) -> TopicLog:
    """`partitions`: those of the topic → first offset and end; `reports`: (topic, partition) → the offset up to which
    `towpath compact` has read, and its report."""
    known = {place: reports[place] for place in partitions if place in reports}
    oldest = min((report.oldest for _, report in known.values() if report.oldest is not None), default=None)
    is_whole = len(known) == len(partitions)
    return TopicLog(
        namespace=namespace_of(pipeline.name, name),
        topic=name,
        offsets=sum(end - first for first, end in partitions.values()),
        bytes=sizes.get(name, 0) if sizes is not None else None,
        begins=max((first for first, _ in partitions.values()), default=0),
        compacted=is_compacted(settings),
        unprotected_documents=sum(report.dirty for _, report in known.values()) if known else None,
        oldest_seconds=_age(oldest),
        reported_seconds=_age(min(report.at for _, report in known.values())) if is_whole else None,
        unreported_offsets=sum(max(0, partitions[p][1] - read - _CONTROL_RECORD) for p, (read, _) in known.items()),
    )


def _age(time_ms: int | None) -> float | None:
    return None if time_ms is None else max(0.0, round(time.time() - time_ms / 1000, 3))


def unprotected(log: Log, topics: Sequence[TopicLog]) -> Iterator[str]:
    """Updates that the cleaner may soon reach although no whole document follows them."""
    half = log.compaction_lag / 2000
    limit = f"the cleaner may remove updates that are older than {2 * half:,.0f} s"
    if never := [topic.namespace for topic in topics if topic.reported_seconds is None and topic.offsets]:
        yield (
            f"`towpath compact` has not read {_first(never)} yet: start it, because a compacted log must be"
            " protected ([log] compact)"
        )
    if late := [topic for topic in topics if topic.unreported_offsets and (topic.reported_seconds or 0) > half]:
        longest = max(topic.reported_seconds or 0 for topic in late)
        names = _first([topic.namespace for topic in late])
        yield f"`towpath compact` has not reported on {names} for {longest:,.0f} s: is it running? {limit}"
    for topic in topics:
        if (topic.oldest_seconds or 0) > half:
            yield (
                f"{topic.namespace}: an update is {topic.oldest_seconds:,.0f} s old, and no whole document follows it;"
                f" {limit}; see the output of `towpath compact`"
            )


def _first(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def with_replays(session: Session, report: Report) -> Report:
    """With the replays as they are now. If the destination does not answer at all, the status itself reports that."""
    replays = tuple(_replay(replay, session) for replay in find_all(session.connect, session.pipeline))
    found = problem = None
    try:
        found = rebuild.read_progress(session)
    except MongoError as error:
        problem = None if isinstance(error, MongoUnreachable) else Problem.of(error)
    begun = found and Rebuild(found[0].began, found[0].only, found[0].phase, found[1], found[0].offsets)
    return replace(report, replays=replays, rebuild=begun, rebuild_error=problem)


def _replay(replay: Replay, session: Session) -> ReplayState:
    topics, plan = session.topics, replay.plan
    (connector,) = statuses(session.connect, [replay.name])
    existing = topics.all()
    letters = topics.ends(topic for name, topic in existing.items() if name == replay.sink.dead_letter_topic)
    done = behind = error = None
    try:
        if replay.uri is None:
            raise TowpathError(
                f"{replay.sink.secrets_file} cannot be read on this machine, so its destination cannot be queried"
            )
        with session.replay_destination(replay.uri).briefly() as client:
            applied = {place: at.offset for place, at in sink_positions.positions(client, replay.sink).items()}
    except TowpathError as failure:
        error = Problem.of(failure)
    else:
        ends = topics.ends(replayed_topics(replay.pipeline, plan.only, existing))
        done = plan.offsets - measure(topics, still_in_log(plan.log, topics), applied).records
        behind = measure(topics, ends, applied).records
    return ReplayState(
        label=replay.label,
        connector=replay.name,
        destination=str(replay.destination),
        only=tuple(plan.only),
        until=str(plan.until) if plan.until else None,
        follow=plan.follow,
        began=plan.began,
        state="FAILED" if connector.failures else connector.state,
        reasons=connector.reasons,
        records=plan.offsets,
        records_done=done,
        records_behind=behind,
        dead_letters=sum(end - max(first, plan.letters) for first, end in letters.values()),
        dead_letter_topic=replay.sink.dead_letter_topic,
        error=error,
    )
