"""Collects everything that `towpath status` shows from Connect, Kafka and both clusters."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property

from towpath.clients.connect.control import statuses
from towpath.clients.connect.rest import Connector
from towpath.clients.kafka.topics import Place, Topic
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import clocks
from towpath.config.namespaces import namespace_of
from towpath.deploy.schema import changes
from towpath.deploy.schema.changes import SchemaChanges
from towpath.errors import NoSuchConnector, TowpathError, fields
from towpath.log import bounds, dead_letters, reread_requests, source_offsets
from towpath.log.bounds import Break, LogState
from towpath.log.dead_letters import DeadLetters
from towpath.log.lag import Lag, change_topics, measure, refuse_hanging_transactions
from towpath.log.source_offsets import SELECTION, SourceState, Splices, read_state
from towpath.log.topic_settings import pipeline_topics
from towpath.run.status import figures
from towpath.run.status.figures import RATE_WINDOW, Copied, Status, Waiting
from towpath.session import Session
from towpath.store import cutover as marker
from towpath.store import positions as sink_positions
from towpath.store.cutover import Cutover
from towpath.store.positions import Applied, TaskState


class _Collector:
    """Reads the parts of one status. A part that cannot be read is reported in `trouble`; the others are shown."""

    def __init__(self, session: Session) -> None:
        pipeline, topics = session.pipeline, session.topics
        self.session, self.pipeline, self.connect, self.topics = session, pipeline, session.connect, topics
        self.trouble: list[str] = []
        self.errors: list[dict[str, str]] = []
        self.ids: Mapping[str, str] | None = None
        self.existing: dict[str, Topic] = topics.all()  # first: without Kafka, some requests to Connect block for 90 s
        self.changes: SchemaChanges | None = None
        self.positions, self.tasks, self.cutover = self.sink()
        changes = change_topics(pipeline, self.existing)
        requests = [self.existing[name] for name in (pipeline.request_topic,) if name in self.existing]
        self.ends = topics.ends([*changes, *requests])
        _, self.requested = self.ends.pop((pipeline.request_topic, 0), (0, 0))
        self.written = {place: (self.ends[place][0], end) for place, end in topics.written(changes).items()}
        refuse_hanging_transactions(pipeline, topics, self.ends, written=self.written)  # one may block Connect

    def failed(self, error: TowpathError) -> None:
        self.trouble.append(str(error))
        self.errors.append(fields(error))

    def sources(self) -> dict[str, SourceState]:
        """Connector → the state that it has committed; an empty state for a connector that does not exist."""
        states = {}
        for name in self.pipeline.source_connectors:
            try:
                states[name] = read_state(self.connect, name)
            except NoSuchConnector:
                states[name] = SourceState(None)
        self.trouble += [f"{name}: {state.warning}" for name, state in states.items() if state.warning]
        self.trouble += [
            f"{name}: {of.trouble}"
            for name, state in states.items()
            for of in (state.schema if self.pipeline.ddl.apply else state.ddl,)
            if of and of.trouble
        ]
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
            self.failed(error)
            return None, (), None

    def lag(self) -> Lag | None:
        if self.positions is None:
            return None
        applied = {place: position.offset for place, position in self.positions.items()}
        return measure(self.topics, self.ends, applied, self.source_now)

    @cached_property
    def source_clocks(self) -> tuple[ClusterTime, float] | None:
        """As `clocks` reads them, at most once per status; None while the source does not answer."""
        try:
            with self.session.source.briefly() as client:
                return clocks(client)
        except TowpathError as error:
            self.failed(error)
            return None

    def source_now(self) -> float:
        """The source's wall clock in seconds; this machine's while the source does not answer."""
        return self.source_clocks[1] if self.source_clocks else time.time()

    def breaks(self) -> tuple[Break, ...]:
        """Positions that are not in the log; none during a cutover, since the sink then stays stopped."""
        if self.cutover is not None or self.positions is None:
            return ()
        try:
            self.ids = self.topics.ids(pipeline_topics(self.pipeline, self.existing))
            return bounds.confirmed(self.session, LogState(self.positions, self.written, self.ids))
        except TowpathError as error:
            self.failed(error)
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
            self.failed(error)
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
        done = all(map(_streaming, sources.values())) and not any(
            self.has_to_copy(name, state) for name, state in sources.items()
        )
        try:
            return done, () if done else self.copies(sources, rates)
        except TowpathError as error:
            self.failed(error)
            return done, ()

    def has_to_copy(self, name: str, state: SourceState) -> bool:
        """Whether a copy runs, or the connector has been given collections that it has not started to copy."""
        if not self.pipeline.has_own_source or state.copying:
            return bool(state.copying)
        return state.selection != (self.connect.config(name) or {}).get(SELECTION, state.selection)

    def copies(self, sources: Mapping[str, SourceState], rates: Mapping[str, float]) -> tuple[Copied, ...]:
        """Progress of the copies. For Debezium's own copy, the source estimates the number of documents."""
        prefix = self.pipeline.name
        if self.pipeline.has_own_source:
            copies = [copy for state in sources.values() for copy in state.copies]
            return figures.copied_by_ranges(prefix, copies, rates)
        records: dict[str, int] = {}
        for (topic, _), (first, end) in self.ends.items():
            namespace = namespace_of(prefix, topic)
            records[namespace] = records.get(namespace, 0) + end - first
        with self.session.source.briefly() as client:
            by_namespace = {namespace_of(prefix, topic): rate for topic, rate in rates.items()}
            return figures.copied_by_debezium(client, records, by_namespace)

    def behind(self, times: Iterable[ClusterTime | None]) -> float | None:
        """Seconds by which the earliest of these times is behind the source; None while the source does not answer."""
        seconds = [time.seconds for time in times if time]
        if not seconds:
            return 0.0
        if self.source_clocks is None:
            return None
        # both are whole seconds, and an idle source's stream moves on only with its next no-op
        return float(max(0, self.source_clocks[0].seconds - min(seconds) - 1))


def read_status(session: Session) -> Status:
    """The status now. Raises when Connect or Kafka does not answer; a cluster's failure is reported in `trouble`."""
    pipeline, collector = session.pipeline, _Collector(session)
    connectors = tuple(statuses(session.connect, pipeline.connectors))
    state = _state(connectors)
    sources = collector.sources()
    lag, rates = collector.lag(), collector.rates()
    done, copies = collector.captured(sources, rates)
    captured = [state.position.time for state in sources.values() if state.position]
    needed = [state.position.time if state.position else state.start for state in sources.values()]
    breaks = collector.breaks()
    positions = collector.positions or {}
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
        held=figures.held(copy for state in sources.values() for copy in state.held),
        capture_seconds=collector.behind(captured) if all(map(_streaming, sources.values())) else 0.0,
        uncaptured_seconds=collector.behind(needed),
        dead_letters=collector.dead_letters(),
        waiting=collector.waiting(sources),
        epochs={place: applied.epoch for place, applied in positions.items() if pipeline.exactly_once},
        tasks=collector.tasks,
        cutover=collector.cutover,
        breaks=breaks,
        splices=sum((state.splices for state in sources.values()), Splices()),
        ddl=source_offsets.in_order(state.ddl for state in sources.values() if state.ddl),
        changes=collector.changes,
        trouble=tuple(collector.trouble),
        ends=collector.ends,
        topic_ids=collector.ids,
        errors=tuple(collector.errors),
    )


def _streaming(state: SourceState) -> bool:
    """Whether the initial copy is done and the stream has started."""
    if state.position is None:  # a stream that has only just started, where nothing was to be copied
        return state.start is not None and state.phase == "stream"
    return not state.position.snapshot_running and state.phase != "copy"


def _state(connectors: tuple[Connector, ...]) -> str:
    states = {connector.state for connector in connectors}
    states |= {task.state for connector in connectors for task in connector.tasks}
    for state in ("MISSING", "FAILED", "STOPPED", "PAUSED"):
        if state in states:
            return state.lower()
    return "running" if all(connector.running for connector in connectors) else "starting"
