"""One look at a pipeline: everything that `towpath status` shows, asked of Connect, Kafka and both clusters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

from connectors.control import statuses
from connectors.rest import Connect, Connector
from towpath.bookkeeping import cutover as marker
from towpath.bookkeeping import positions as sink_positions
from towpath.bookkeeping.cutover import Cutover
from towpath.bookkeeping.positions import Applied, TaskState
from towpath.errors import NoSuchConnector, TowpathError, fields
from towpath.kafka.topics import Place, Topic, Topics
from towpath.log import bounds, dead_letters, reread_requests, source_offsets
from towpath.log.bounds import Break, LogState
from towpath.log.dead_letters import DeadLetters
from towpath.log.lag import Lag, change_topics, measure, refuse_hanging_transactions
from towpath.log.source_offsets import SELECTION, SourceState, read_state
from towpath.mongo.client import briefly, clocks
from towpath.namespaces import namespace_of
from towpath.pipeline import ClusterTime, Pipeline
from towpath.status import figures
from towpath.status.figures import RATE_WINDOW, Copied, Status, Waiting
from towpath.topic_settings import pipeline_topics


class _Look:
    """One look at a pipeline. A part that cannot be seen is told in `trouble`, and the others are shown."""

    def __init__(self, pipeline: Pipeline, connect: Connect, topics: Topics) -> None:
        self.pipeline, self.connect, self.topics = pipeline, connect, topics
        self.trouble: list[str] = []
        self.errors: list[dict[str, str]] = []
        self.ids: Mapping[str, str] | None = None
        self.existing: dict[str, Topic] = topics.all()  # first: without Kafka, Connect lets some requests wait for 90 s
        self.positions, self.tasks, self.cutover = self.sink()
        changes = change_topics(pipeline, self.existing)
        requests = [self.existing[name] for name in (pipeline.request_topic,) if name in self.existing]
        self.ends = topics.ends([*changes, *requests])
        _, self.requested = self.ends.pop((pipeline.request_topic, 0), (0, 0))
        self.written = {place: (self.ends[place][0], end) for place, end in topics.written(changes).items()}
        refuse_hanging_transactions(pipeline, topics, self.ends, written=self.written)  # Connect may wait for its end

    def failed(self, error: TowpathError) -> None:
        self.trouble.append(str(error))
        self.errors.append(fields(error))

    def sources(self) -> dict[str, SourceState]:
        """Connector → what it has committed; nothing of one that is not there."""
        found = {}
        for name in self.pipeline.source_connectors:
            try:
                found[name] = read_state(self.connect, name)
            except NoSuchConnector:
                found[name] = SourceState(None)
        self.trouble += [f"{name}: {state.warning}" for name, state in found.items() if state.warning]
        self.trouble += [
            f"{name}: {state.ddl.trouble}" for name, state in found.items() if state.ddl and state.ddl.trouble
        ]
        return found

    def sink(self) -> tuple[dict[Place, Applied] | None, tuple[TaskState, ...], Cutover | None]:
        """What the destination tells of the sink, in plain mode its consumers; no positions when it is out of reach."""
        if not self.pipeline.exactly_once:
            committed = self.topics.committed(self.pipeline.sink_group)
            return {place: Applied(offset, 0) for place, offset in committed.items()}, (), None
        try:
            with briefly(self.pipeline.destination_uri, "destination") as client:
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
        done = {place: applied.offset for place, applied in self.positions.items()}
        return measure(self.topics, self.ends, done, self.source_now)

    @cached_property
    def source_clocks(self) -> tuple[ClusterTime, float] | None:
        """As `clocks` reads them, once in a look; None, which is told, where the source does not answer."""
        try:
            with briefly(self.pipeline.source_uri, "source") as client:
                return clocks(client)
        except TowpathError as error:
            self.failed(error)
            return None

    def source_now(self) -> float:
        """The source's wall clock; while it does not answer, this machine's."""
        return self.source_clocks[1] if self.source_clocks else time.time()

    def breaks(self) -> tuple[Break, ...]:
        """Positions that are not in the log; of a sink that must stay stopped they are of no account."""
        if self.cutover is not None or self.positions is None:
            return ()
        try:
            self.ids = self.topics.ids(pipeline_topics(self.pipeline, self.existing))
            return bounds.confirmed(self.pipeline, self.topics, LogState(self.positions, self.written, self.ids))
        except TowpathError as error:
            self.failed(error)
            return ()

    def rates(self) -> dict[str, float]:
        """Topic → records a second, control records of transactions included."""
        names = {topic for topic, _ in self.ends}
        since = self.topics.offsets_at(
            (self.existing[name] for name in names if name in self.existing), int((time.time() - RATE_WINDOW) * 1000)
        )
        found = dict.fromkeys(names, 0.0)
        for place, (_, end) in self.ends.items():
            if since.get(place, -1) >= 0:
                found[place[0]] += (end - since[place]) / RATE_WINDOW
        return found

    def dead_letters(self) -> DeadLetters:
        try:
            return dead_letters.summarize(self.pipeline, self.topics, self.existing)
        except TowpathError as error:
            self.failed(error)
            return DeadLetters(0, False, ())

    def waiting(self, sources: Mapping[str, SourceState]) -> tuple[Waiting, ...]:
        end, found = self.requested, []
        for name, state in sources.items():
            first = reread_requests.waiting(
                self.pipeline, self.topics, name, state.requests.next if state.requests else 0, end
            )
            if first is not None:
                found.append(Waiting(name, end - first, state.requests.waiting if state.requests else ""))
        return tuple(found)

    def captured(
        self, sources: Mapping[str, SourceState], rates: Mapping[str, float]
    ) -> tuple[bool, tuple[Copied, ...], float]:
        """Whether nothing is being copied, what is, and by how many seconds the stream is behind the source."""
        streaming = all(map(_streaming, sources.values()))
        done = streaming and not any(self.has_to_copy(name, state) for name, state in sources.items())
        try:
            copies = () if done else self.copies(sources, rates)
            return done, copies, self.behind(sources) if streaming else 0.0
        except TowpathError as error:
            self.failed(error)
            return done, (), 0.0

    def has_to_copy(self, name: str, state: SourceState) -> bool:
        """Also when the connector was given collections that it has not taken up yet."""
        if not self.pipeline.has_own_source or state.copying:
            return bool(state.copying)
        return state.selection != (self.connect.config(name) or {}).get(SELECTION, state.selection)

    def copies(self, sources: Mapping[str, SourceState], rates: Mapping[str, float]) -> tuple[Copied, ...]:
        """What is being copied; of Debezium's own copy the source is asked how much there is."""
        prefix = self.pipeline.name
        if self.pipeline.has_own_source:
            every = [copy for state in sources.values() for copy in state.copies]
            return figures.copied_by_ranges(prefix, every, rates)
        records: dict[str, int] = {}
        for (topic, _), (first, end) in self.ends.items():
            namespace = namespace_of(prefix, topic)
            records[namespace] = records.get(namespace, 0) + end - first
        with briefly(self.pipeline.source_uri, "source") as client:
            by_namespace = {namespace_of(prefix, topic): rate for topic, rate in rates.items()}
            return figures.copied_by_debezium(client, records, by_namespace)

    def behind(self, sources: Mapping[str, SourceState]) -> float:
        """Seconds by which the stream is behind the source."""
        seconds = [state.position.time.seconds for state in sources.values() if state.position]
        if self.source_clocks is None:
            return 0.0
        # both are whole seconds, and an idle source's stream moves on only with its next no-op
        return float(max(0, self.source_clocks[0].seconds - min(seconds) - 1))


def look(pipeline: Pipeline, connect: Connect, topics: Topics) -> Status:
    """The status now. Raises when Connect or Kafka is out of reach; a cluster that is shows as `trouble`."""
    it = _Look(pipeline, connect, topics)
    found = tuple(statuses(connect, pipeline.connectors))
    state = _state(found)
    sources = it.sources()
    lag, rates = it.lag(), it.rates()
    done, copies, behind = it.captured(sources, rates)
    breaks = it.breaks()
    return Status(
        name=pipeline.name,
        mode=pipeline.mode,
        state=state,
        snapshot_done=done,
        lag_records=lag.records if lag else None,
        apply_seconds=lag.seconds if lag else None,
        records_per_second=sum(rates.values()),
        connectors=found,
        snapshot=() if state == "missing" else copies,
        held=figures.held(copy for state in sources.values() for copy in state.held),
        capture_seconds=behind,
        dead_letters=it.dead_letters(),
        waiting=it.waiting(sources),
        epochs={place: applied.epoch for place, applied in (it.positions or {}).items() if pipeline.exactly_once},
        tasks=it.tasks,
        cutover=it.cutover,
        breaks=breaks,
        ddl=source_offsets.in_order(state.ddl for state in sources.values() if state.ddl),
        trouble=tuple(it.trouble),
        ends=it.ends,
        topic_ids=it.ids,
        errors=tuple(it.errors),
    )


def _streaming(state: SourceState) -> bool:
    """Whether the first copy is over, and the stream has begun."""
    position = state.position
    return position is not None and not position.snapshot_running and state.phase != "copy"


def _state(found: tuple[Connector, ...]) -> str:
    states = {connector.state for connector in found} | {task.state for c in found for task in c.tasks}
    for state in ("MISSING", "FAILED", "STOPPED", "PAUSED"):
        if state in states:
            return state.lower()
    return "running" if all(connector.running for connector in found) else "starting"
