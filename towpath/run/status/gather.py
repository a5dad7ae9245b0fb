"""Gathers what `towpath status` shows from Connect, Kafka and both clusters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

from towpath.checks import capture
from towpath.checks.kafka import guard
from towpath.clients.connect.control import statuses
from towpath.clients.kafka.topics import Place, Topic
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import clocks
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.deploy import schema_changes as changes
from towpath.deploy.schema_changes import SchemaChanges
from towpath.errors import MongoError, MongoUnreachable, NoSuchConnector, TowpathError
from towpath.history import rebuild
from towpath.history.plan import Replay, find_all
from towpath.history.plan import change_topics as replayed_topics
from towpath.history.unprotected import Figures, figures
from towpath.log import bounds, dead_letters, reread_requests, source_offsets
from towpath.log.bounds import Break, LogState, still_in_log
from towpath.log.dead_letters import DeadLetters
from towpath.log.definitions import is_compacted, pipeline_topics
from towpath.log.lag import Lag, change_topics, measure, refuse_hanging_transactions
from towpath.log.source_offsets import SELECTION, SourceState, Splices, read_state
from towpath.run.status.report import Problem, Rebuild, Replays, ReplayState
from towpath.run.status.status import (
    RATE_WINDOW,
    Copied,
    LogReport,
    Status,
    TopicLog,
    Waiting,
    behind,
    copied_by_ranges,
    held,
    is_streaming,
    state_of,
    unprotected,
)
from towpath.session import Session
from towpath.store import cutover as marker
from towpath.store import positions as sink_positions
from towpath.store.cutover import Cutover
from towpath.store.positions import Applied, TaskState

_CONTROL_RECORD = 1  # offset, of the record that ends the last transaction


class _Gathering:
    """Reads the parts of one status. A part that cannot be read is reported in `errors`; the others are shown."""

    def __init__(self, session: Session) -> None:
        pipeline, topics = session.pipeline, session.topics
        self.session, self.pipeline, self.connect, self.topics = session, pipeline, session.connect, topics
        self.errors: list[TowpathError] = []
        self.ids: Mapping[str, str] | None = None
        self.existing: dict[str, Topic] = topics.all()  # first: without Kafka, some requests to Connect block for 90 s
        self.changes: SchemaChanges | None = None
        self.positions, self.tasks, self.cutover = self.sink()
        changes = change_topics(pipeline, self.existing)
        requests = [self.existing[name] for name in (pipeline.request_topic,) if name in self.existing]
        self.ends = topics.ends([*changes, *requests])
        _, self.requested = self.ends.pop((pipeline.request_topic, 0), (0, 0))
        self.written = topics.ends(changes, stable=False)
        refuse_hanging_transactions(pipeline, topics, self.ends, written=self.written)  # one may block Connect

    def sources(self) -> dict[str, SourceState]:
        """Connector → the state that it has committed; an empty state for a connector that does not exist."""
        states = {}
        for name in self.pipeline.source_connectors:
            try:
                states[name] = read_state(self.connect, name)
            except NoSuchConnector:
                states[name] = SourceState(None)
        for name, state in states.items():
            schema = state.schema if self.pipeline.ddl.apply else state.ddl
            reasons = (state.warning, schema.error if schema else "")
            self.errors += [TowpathError(f"{name}: {reason}") for reason in reasons if reason]
        return states

    def sink(self) -> tuple[dict[Place, Applied] | None, tuple[TaskState, ...], Cutover | None]:
        """The sink's positions, tasks and cutover as the destination keeps them; None and empty while it is down.

        In plain mode, the positions are the committed offsets of the sink's consumers.
        """
        if not self.pipeline.exactly_once:
            committed = self.topics.committed(self.pipeline.sink_group)
            self.changes = SchemaChanges()
            return {place: Applied(offset, 0) for place, offset in committed.items()}, (), None
        try:
            with self.session.destination.briefly() as client:
                self.changes = changes.read(client, self.pipeline)
                return (
                    sink_positions.positions(client, self.pipeline),
                    sink_positions.task_states(client, self.pipeline),
                    marker.read(client, self.pipeline),
                )
        except TowpathError as error:
            self.errors.append(error)
            return None, (), None

    def lag(self) -> Lag | None:
        if self.positions is None:
            return None
        applied = {place: position.offset for place, position in self.positions.items()}
        # the source's wall clock; this machine's while the source does not answer
        return measure(
            self.topics, self.ends, applied, lambda: self.source_clocks[1] if self.source_clocks else time.time()
        )

    @cached_property
    def source_clocks(self) -> tuple[ClusterTime, float] | None:
        """As `clocks` reads them, at most once per status; None while the source does not answer."""
        try:
            with self.session.source.briefly() as client:
                return clocks(client)
        except TowpathError as error:
            self.errors.append(error)
            return None

    def breaks(self) -> tuple[Break, ...]:
        """Positions that are not in the log; none during a cutover, since the sink then stays stopped."""
        if self.cutover is not None or self.positions is None:
            return ()
        try:
            self.ids = self.topics.ids(pipeline_topics(self.pipeline, self.existing))
            return bounds.confirmed(self.session, LogState(self.positions, self.written, self.ids))
        except TowpathError as error:
            self.errors.append(error)
            return ()

    def rates(self) -> dict[str, float]:
        """Topic → records per second, including control records of transactions."""
        names = {topic for topic, _ in self.ends}
        since = self.topics.offsets_at(dict.fromkeys(self.ends, int((time.time() - RATE_WINDOW) * 1000)))
        rates = dict.fromkeys(names, 0.0)
        for place, (_, end) in self.ends.items():
            if since.get(place, -1) >= 0:
                rates[place[0]] += (end - since[place]) / RATE_WINDOW
        return rates

    def dead_letters(self) -> DeadLetters | None:
        try:
            return dead_letters.summarize(self.pipeline, self.topics, self.existing)
        except TowpathError as error:
            self.errors.append(error)
            return None

    def waiting(self, sources: Mapping[str, SourceState]) -> tuple[Waiting, ...]:
        end, connectors = self.requested, []
        for name, state in sources.items():
            first = reread_requests.waiting(
                self.pipeline, self.topics, name, state.requests.next if state.requests else 0, end
            )
            if first is not None:
                connectors.append(Waiting(name, end - first, state.requests.waiting if state.requests else ""))
        return tuple(connectors)

    def captured(
        self, sources: Mapping[str, SourceState], rates: Mapping[str, float]
    ) -> tuple[bool, tuple[Copied, ...]]:
        """Whether all copies are done, and the unfinished ones."""
        done = all(map(is_streaming, sources.values())) and not any(
            self.has_to_copy(name, state) for name, state in sources.items()
        )
        try:
            return done, () if done else self.copies(sources, rates)
        except TowpathError as error:
            self.errors.append(error)
            return done, ()

    def has_to_copy(self, name: str, state: SourceState) -> bool:
        """Whether a copy runs, or the connector has been given collections that it has not started to copy."""
        if not self.pipeline.has_own_source or state.copying:
            return bool(state.copying)
        return state.selection != (self.connect.config(name) or {}).get(SELECTION, state.selection)

    def copies(self, sources: Mapping[str, SourceState], rates: Mapping[str, float]) -> tuple[Copied, ...]:
        """Progress of the copies. Debezium's own copy reports none: the source estimates the number of documents."""
        prefix = self.pipeline.name
        if self.pipeline.has_own_source:
            copies = [copy for state in sources.values() for copy in state.copies]
            return copied_by_ranges(prefix, copies, rates)
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


def read_status(session: Session) -> Status:
    """The status now. Raises when Connect or Kafka does not answer; a cluster's failure is reported in `errors`."""
    pipeline, gathering = session.pipeline, _Gathering(session)
    connectors = tuple(statuses(session.connect, pipeline.connectors))
    state = state_of(connectors)
    sources = gathering.sources()
    lag, rates = gathering.lag(), gathering.rates()
    done, copies = gathering.captured(sources, rates)
    captured = [state.position.time for state in sources.values() if state.position]
    needed = [state.position.time if state.position else state.start for state in sources.values()]
    breaks, now = gathering.breaks(), None
    if any(captured) or any(needed):
        now = gathering.source_clocks and gathering.source_clocks[0]
    return Status(
        name=pipeline.name,
        mode=pipeline.mode,
        state=state,
        snapshot_done=done,
        lag_records=lag.records if lag else None,
        apply_seconds=lag.seconds if lag else None,
        records_per_second=sum(rates.values()),
        connectors=connectors,
        snapshot=() if state == "missing" else copies,
        held=held(copy for state in sources.values() for copy in state.held),
        capture_seconds=behind(now, captured) if all(map(is_streaming, sources.values())) else 0.0,
        uncaptured_seconds=behind(now, needed),
        dead_letters=gathering.dead_letters(),
        waiting=gathering.waiting(sources),
        epochs={place: p.epoch for place, p in (gathering.positions or {}).items() if pipeline.exactly_once},
        tasks=gathering.tasks,
        cutover=gathering.cutover,
        breaks=breaks,
        splices=sum((state.splices for state in sources.values()), Splices()),
        ddl=source_offsets.in_order(state.ddl for state in sources.values() if state.ddl),
        changes=gathering.changes,
        ends=gathering.ends,
        topic_ids=gathering.ids,
        errors=tuple(gathering.errors),
    )


def read_log(session: Session, ends: Mapping[Place, tuple[int, int]]) -> LogReport:
    """The log now, and its risks. `ends`: (topic, partition) → its first offset and its end."""
    pipeline, topics = session.pipeline, session.topics
    names, sizes = sorted({topic for topic, _ in ends}), topics.bytes_on_disk()
    settings = topics.settings_of_all(names)
    committed = topics.committed_with_metadata(pipeline.compaction_group) if pipeline.log.compact else {}
    reports = {place: (offset, report) for place, (offset, words) in committed.items() if (report := figures(words))}
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
    return LogReport(logs, (*late, *risks, *capture.warnings(session)))


def _topic(
    pipeline: Pipeline,
    name: str,
    partitions: Mapping[Place, tuple[int, int]],
    settings: Mapping[str, str],
    reports: Mapping[Place, tuple[int, Figures]],
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


def read_replays(session: Session) -> Replays:
    """The replays now. If the destination does not answer at all, the status itself reports that."""
    replays = tuple(_replay(replay, session) for replay in find_all(session.connect, session.pipeline))
    try:
        found = rebuild.read_progress(session)
    except MongoUnreachable:
        return Replays(replays)
    except MongoError as error:
        return Replays(replays, None, Problem.of(error))
    if found is None:
        return Replays(replays)
    plan, done = found
    return Replays(replays, Rebuild(plan.began, plan.only, plan.phase, done, plan.offsets))


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
        reasons=connector.failures,
        records=plan.offsets,
        records_done=done,
        records_behind=behind,
        dead_letters=sum(end - max(first, plan.letters) for first, end in letters.values()),
        dead_letter_topic=replay.sink.dead_letter_topic,
        error=error,
    )
