"""Change a pipeline's topics and connectors to match the pipeline file, and nothing else; or remove them.

Deploying twice changes nothing. A change that would lose records or break their order is refused before anything is
touched (see `towpath.checks.change`). Connectors that Strimzi's operator owns are only compared: it reverts changes of
configuration and state, and deletes unknown ones. A restart is not a change: the operator lets it be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from towpath.checks import capture, change, connect, destination, kafka, source, target
from towpath.checks.facts import Facts, is_foreign
from towpath.checks.rule import Finding, Rule, error, ok, require, run, warning
from towpath.clients.connect.control import statuses, wait_stopped
from towpath.clients.connect.rest import Connect, code_of
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.errors import ConnectError, MongoUnreachable, Refused, TowpathError, Unresolved
from towpath.log.definitions import (
    COMPACTED_ONCE,
    DESTINATION_SET,
    HEARTBEAT_SETTINGS,
    MARK,
    POLICY,
    SOURCE_SET,
    TopicGroup,
    is_compacted,
    topic_groups,
)
from towpath.session import Say, Session
from towpath.store import credentials, cutover, positions, verdict, writers
from towpath.store.positions import WRITERS
from towpath.store.writers import Registration

#: Advice for connector settings that come from the pipeline file.
_ADVICE = {
    "mongodb.connection.string": " ([source] uri; grant what `towpath check` finds missing)",
    "connection.uri": " ([destination] uri; grant what `towpath check` finds missing)",
}
_APPLY = (
    "apply the resources of the connectors: `towpath manifests PIPELINE | kubectl apply -f - -l"
    " app.kubernetes.io/component=connectors`"
)
_SECRET = "write it again, into the Secret of the workers: `towpath manifests PIPELINE --credentials FILE`"
_KNOWN_S = 10.0  # seconds until a broker must know of another topic that was created
_SOON = 100  # topics that a broker learns of at once
_DEPLOY = "deploy"
_SHOWN = 5  # topics named in one change
#: From the note of a raised lag until all brokers have the new one, and by which their clocks may be ahead.
_UNSURE = timedelta(minutes=2)
Settings = Mapping[str, str]
_SAME = "deploy would stop with the same message"
#: What `check` checks, in order. `deploy` stops at the required ones.
SERVERS: Sequence[Rule[Facts]] = (
    *change.TRAPS,
    *source.RULES,
    *destination.RULES,
    *kafka.RULES,
    *connect.RULES,
    Rule("source", capture.within_oplog, required=False, applies=lambda facts: facts.has_connect and facts.is_deployed),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a deployment, such as "create topic shop.a"."""

    description: str
    apply: Callable[[], object]


def findings(facts: Facts) -> list[Finding]:
    """Everything that `check` finds. A server that cannot be read is a finding, no exception."""
    facts.probe()
    found = list[Finding]()
    for rules in (SERVERS, change.RULES, (Rule(_DEPLOY, _planned),)):
        if not any(finding.level == "error" for finding in found):
            found += run(rules, facts)
    return [replace(one, advice=one.advice or _SAME) if one.level == "error" else one for one in found]


def stopped_by_cutover(session: Session) -> tuple[str, ...]:
    """What a deployment does not start: after a cutover, the sink. Raises `MongoError`."""
    return (session.pipeline.sink_connector,) if cutover.is_cut_over(session) else ()


def _planned(facts: Facts) -> Iterator[Finding]:
    """Plan a deployment, and change nothing."""
    changes, differing = _changes(facts), list(differences(facts))
    yield from differing
    if changes:
        yield ok(f"would make {counted(len(changes), 'change')}; `towpath deploy --dry-run` lists them")
    elif not differing:
        yield ok("nothing to change: everything matches the file")


def plan(facts: Facts) -> list[Change]:
    """The changes that a pipeline needs in Kafka and Connect, in order; empty when everything matches the file.

    Raises `Refused`.
    """
    for finding in require((*SERVERS, *change.RULES), facts):
        if finding.level == "warning" and finding.subject == _DEPLOY:
            facts.session.say(f"{finding.finding}; {finding.advice}")
    return _changes(facts)


def _changes(facts: Facts) -> list[Change]:
    changes = [*_registration_changes(facts), *_topic_changes(facts), *_id_changes(facts)]
    return changes if facts.pipeline.has_operator else [*changes, *_secret_changes(facts), *_connector_changes(facts)]


def differences(facts: Facts) -> Iterator[Finding]:
    """How the connectors that an operator owns differ from the file; nothing for a pipeline without an operator.

    Only the operator, or who writes its resources, can change that. It names settings, and no values.
    """
    file = facts.pipeline.secrets_file
    if not facts.pipeline.has_operator:
        return
    if file.exists() and credentials.differs(file, facts.secrets):
        yield error(f"{file} does not hold what the workers need", _SECRET)
    for name, config in facts.desired.items():
        before = facts.deployed[name]
        if before is None:
            yield warning(f"there is no connector {name}", _APPLY)
        elif keys := _differing(before, config | _same_sets(before, config)):
            yield error(f"connector {name} differs from the file ({', '.join(keys)})", _APPLY)


def _topic_changes(facts: Facts) -> Iterator[Change]:
    kafka, existing = facts.pipeline.kafka, facts.existing
    for group in _desired_topics(facts) if kafka.topics == "deploy" else ():
        if new := [name for name in group.names if name not in existing]:
            create = partial(facts.topics.create, new, group.partitions, kafka.replication_factor, group.settings)
            yield Change(f"create {_topics(new)}", create)
        if group.settings is not HEARTBEAT_SETTINGS:
            yield from _settings_changes(facts, [name for name in group.names if name in existing], group.settings)


def _registration_changes(facts: Facts) -> Iterator[Change]:
    """The destination knows the pipeline, and which topics it has, before the first of them is created.

    So what an interrupted deployment has created is known to be the pipeline's.
    """
    registered = facts.registered.get(facts.pipeline.name)
    ours = Registration.of(facts.pipeline, facts.kafka_cluster, facts.source.replica_set)
    creating = [name for group in _desired_topics(facts) for name in group.names if name not in facts.existing]
    if creating or registered != ours:
        register = partial(_register, facts, ours, creating, registered)
        yield Change(f"register {facts.pipeline.name} in towpath.{WRITERS} at the destination", register)


def _id_changes(facts: Facts) -> Iterator[Change]:
    """The destination knows the topics by their ids, also those that an interrupted deployment has created."""
    registered = facts.registered.get(facts.pipeline.name)
    begun = registered.creating and registered.creating & facts.own_topics.ids.keys() if registered else frozenset()
    desired = [name for group in _desired_topics(facts) for name in group.names]
    created = [name for name in desired if name not in facts.existing or name in begun]
    if created:
        store = partial(_store_ids, facts, created)
        yield Change(f"store the ids of {counted(len(created), 'new topic')} in towpath.{WRITERS}", store)


def _store_ids(facts: Facts, created: Sequence[str]) -> None:
    ids = created_ids(facts.topics, created)
    with facts.session.destination.connected() as client:
        writers.note(client, facts.pipeline.name, ids)


def _register(facts: Facts, ours: Registration, creating: Sequence[str], before: Registration | None) -> None:
    """Raises `Refused` when another pipeline has registered for the same namespaces in the meantime."""
    with facts.session.destination.connected() as client:
        if before is not None and _leaves_gap(facts.pipeline, before, ours):
            verdict.begin_history(client, facts.pipeline, "collections were included or excluded without a copy")
        writers.register(client, ours, creating)
        for finding in target.others(ours, writers.read_all(client), facts.targets):
            if before is None:
                writers.forget(client, ours.name)
            raise Refused(finding.finding, finding.advice)


def _leaves_gap(pipeline: Pipeline, before: Registration, ours: Registration) -> bool:
    """Whether the destination may lack what the source has of other collections than before: nothing copies them.

    What was left out for a while, and is included again, is in no record.
    """
    was, now = (({*of.selection.include}, {*of.selection.exclude}, dict(of.renames)) for of in (before, ours))
    return pipeline.copy_method == "none" and was != now


def _desired_topics(facts: Facts) -> tuple[TopicGroup, ...]:
    return topic_groups(facts.pipeline, facts.namespaces, (topic.name for topic in facts.log))


def _settings_changes(facts: Facts, names: Iterable[str], settings: Mapping[str, str]) -> Iterator[Change]:
    """One for all topics that need the same."""
    current = facts.topic_settings
    judged = {name: current[name] for name in names}
    ended = {name for name, now in judged.items() if facts.pipeline.is_change_topic(name) and _hides(now, settings)}
    raised = 0 if ended else _raised_from(judged.values(), settings)
    if raised is not None:
        note, why = partial(_note_cleaned, facts, raised), "compaction ends" if ended else "the lag is raised"
        yield Change(f"store until when the log may be compacted, in towpath.{WRITERS}, as {why}", note)
    unsafe = {topic.name for topic in facts.uncompacted} if is_compacted(settings) else frozenset[str]()
    alike: dict[tuple[tuple[tuple[str, str], ...], bool], list[str]] = {}
    for name, now in judged.items():
        differing = tuple(
            (key, value)
            for key, value in {**settings, **(COMPACTED_ONCE if name in ended else {})}.items()
            if now.get(key) != value and not (key == POLICY and name in unsafe)
        )
        if differing:
            alike.setdefault((differing, name in unsafe), []).append(name)
    for (differing, is_later), same in alike.items():
        listed = ", ".join(f"{key}={value}" for key, value in differing)
        later = f"; `towpath compact` sets {POLICY} later" if is_later else ""
        yield Change(f"set {listed} on {_topics(same)}{later}", partial(facts.topics.alter, same, dict(differing)))


def _raised_from(current: Iterable[Settings], settings: Settings) -> int | None:
    """The smallest lag (ms), of topics that are or were compacted, that these settings raise; None if they raise none.

    From then on the topics do not show how far the cleaner may have come with the lag before.
    """
    new = int(settings.get(MARK, 0))
    lags = [int(now.get(MARK, 0)) for now in current if is_compacted(now) or int(now.get(MARK, 0)) > 0]
    return min((lag for lag in lags if lag < new), default=None)


def _hides(now: Settings, settings: Settings) -> bool:
    """Whether a topic that someone has compacted would not show it any more with these settings."""
    return is_compacted(now) and not is_compacted(settings) and not int(now.get(MARK, 0))


def _note_cleaned(facts: Facts, lag_ms: int) -> None:
    with facts.session.destination.connected() as client:
        writers.note_cleaned(client, facts.pipeline.name, datetime.now(UTC) + _UNSURE - timedelta(milliseconds=lag_ms))


def _secret_changes(facts: Facts) -> Iterator[Change]:
    """Workers read the secrets file only when a connector starts, so connectors are restarted after a change.

    A connector that is updated starts again in any case. Restarted before, it would get the new secrets with its
    old configuration, and could fail.
    """
    file, text, desired = facts.pipeline.secrets_file, facts.secrets, facts.desired
    if not credentials.differs(file, text):
        return
    yield Change(f"write {file}", partial(credentials.write, file, text))
    for name, before in facts.deployed.items():
        if before is not None and not _differing(before, desired.get(name, before)):
            restart = partial(facts.connect.restart, name, only_failed=False)
            yield Change(f"restart connector {name}, for a new address, password or key", restart)


def _connector_changes(facts: Facts) -> Iterator[Change]:
    for name, config in facts.desired.items():
        before, apply = facts.deployed[name], partial(put, facts.connect, name, config, facts.pipeline.secrets_file)
        begins = name not in facts.create_stopped and _begins_log(facts, name)
        if before is None and begins:
            yield Change(f"create connector {name}", partial(_begin, facts.session, name, partial(apply, stopped=True)))
        elif before is None:
            stopped = name in facts.create_stopped
            yield Change(f"create connector {name}{', stopped' if stopped else ''}", partial(apply, stopped=stopped))
        elif keys := _differing(before, config):
            yield Change(f"update connector {name} ({', '.join(keys)})", apply)
        if before is not None and begins and facts.state(name) == "STOPPED":
            yield Change(f"start connector {name}", partial(_begin, facts.session, name))


def _begins_log(facts: Facts, name: str) -> bool:
    """Whether a source connector is to copy everything into a log that holds nothing yet.

    Without a copy, an earlier position is where the capture continues without a gap.
    """
    pipeline = facts.pipeline
    if name not in pipeline.source_connectors or pipeline.copy_method == "none":
        return False
    written = (namespace_of(pipeline.name, topic) for topic in facts.written)
    return all(pipeline.source_connector_of(namespace) != name for namespace in written)


def resume(facts: Facts, name: str) -> None:
    """Resume a connector where it stopped; one that a killed deployment has not started yet begins."""
    if facts.state(name) == "STOPPED" and _begins_log(facts, name):
        _begin(facts.session, name)
    else:
        facts.connect.resume(name)


def _begin(session: Session, name: str, create: Callable[[], object] = lambda: None) -> None:
    """Start a source connector that is stopped, or created so, and copies everything into its empty log.

    With the offsets of an earlier one of its name it would continue the stream, and the log would look complete without
    the documents from before. A deployment that is killed in between leaves it stopped: the next one, or `resume`,
    starts it in the same way.
    """
    create()
    wait_stopped(session.connect, name)
    forget_earlier(session, name)
    session.connect.resume(name)


def forget_earlier(session: Session, name: str) -> None:
    """Remove the offsets of an earlier connector of the name of this one, which is stopped.

    Connect keeps them when a connector is removed, and removes them only while a connector has the name.
    """
    if session.connect.offsets(name):
        session.connect.forget_offsets(name)
        session.say(f"forgot the position of an earlier {name}")


def _topics(names: Sequence[str]) -> str:
    return f"topic{'' if len(names) == 1 else 's'} {first_few(names, _SHOWN)}"


def created_ids(topics: Topics, names: Collection[str]) -> dict[str, str]:
    """The ids, by name, of topics that have just been created, of which each broker learns within a moment.

    A broker learns of thousands at a pace of some hundred partitions a second. Raises `TowpathError` when it has learnt
    of none for 10 s.
    """
    ids, until = topics.ids(names), time.monotonic() + _KNOWN_S
    while (missing := sorted(set(names) - ids.keys())) and time.monotonic() < until:
        time.sleep(0.1 if len(missing) < _SOON else 1.0)
        if known := topics.ids(missing):
            ids, until = ids | known, time.monotonic() + _KNOWN_S
    if missing:
        raise TowpathError(
            f"Kafka at {topics.bootstrap} created {first_few(missing, 3)}, and {_KNOWN_S:.0f} s later knows of none",
            "run `towpath deploy` again, which stores their ids",
        )
    return ids


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The settings that differ, by name."""
    return sorted(key for key in {*before, *after} - {"name"} if before.get(key) != after.get(key))


def _same_sets(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The deployed names of replica sets that have got or lost members only: no resource has to be written for that."""
    keys = [key for key in (SOURCE_SET, DESTINATION_SET) if key in before and key in after]
    return {key: before[key] for key in keys if ReplicaSet.parse(before[key]).is_same(ReplicaSet.parse(after[key]))}


def put(
    connect: Connect,
    name: str,
    config: Mapping[str, str],
    secrets_file: Path,
    advice: Mapping[str, str] = _ADVICE,
    *,
    stopped: bool = False,
) -> None:
    """Create or change a connector; with `stopped`, create it without starting it.

    `advice`: connector setting → text for the user, appended to an error about it. Raises `ConnectError` with the
    message of Connect, the connector or its cluster.
    """
    try:
        for key, messages in connect.errors(name, config).items():
            if credentials.is_unresolved(key, messages[0]):
                found = f"Kafka Connect finds no URI for {name} through ${{file:{secrets_file}:…}}"
                raise Unresolved(found, where=name)
            message = f"Kafka Connect refuses {name}: {key}: {messages[0]}{advice.get(key, '')}"
            raise ConnectError(message, where=name, code=code_of(messages[0]))
        (connect.create_stopped if stopped else connect.put)(name, config)
    except Unresolved as error:
        raise Unresolved(error.what, credentials.advice(secrets_file), where=error.where) from error


def remove(session: Session, *, log: bool, say: Say, facts: Facts | None = None) -> None:
    """Remove the connectors; with `log` also their positions, the topics made for them, and the secrets file.

    Without `log` the positions stay, so that a later deployment of the same file continues there. The sink is removed
    first: nothing may write its positions after they are removed. Connectors of an operator stay, stopped.
    """
    facts = facts or Facts(session)
    pipeline, connect = session.pipeline, session.connect
    own = facts.own_topics  # first: only an existing connector knows which topics it has written
    _note(session, own.ids, say)
    names = dict.fromkeys((pipeline.sink_connector, *pipeline.source_connectors, pipeline.whole_source_connector))
    foreign = [name for name in names if is_foreign(facts, name)]
    for name in foreign:
        say(f"left the connector {name}, which is not Towpath's")
    for name in pipeline.source_connectors if log and pipeline.has_operator else ():
        if facts.deployed[name] is None:  # `deploy` would forget it, and does not create this one
            say(
                f"there is no connector {name}: if it has run, Kafka Connect keeps its position. Before the next"
                " deployment, apply its resource again, and run this again"
            )
    existing = [name for name in names if facts.deployed[name] is not None and name not in foreign]
    for name in existing if log else ():
        connect.stop(name)
    for name in existing:
        if log:
            wait_stopped(connect, name)
            connect.forget_offsets(name)
        if pipeline.has_operator:
            say(f"removed the position of connector {name}")
            continue
        connect.delete(name)
        say(f"removed connector {name}" + (" and its position" if log else ""))
    if not log:
        _note(session, own.ids, say, removed=True)
    else:
        _delete_topics(session, own.ids, say)
        if pipeline.exactly_once or pipeline.dead_letter_topic in own.ids:  # the mode in the file may have changed
            with session.destination.connected() as client:
                count = positions.forget(client, pipeline)
            if count:
                say(f"removed the sink's positions at the destination ({count} documents in the database towpath)")
        else:
            _forget_verdict(session, say)
        if not pipeline.has_operator:  # else it is in a Secret
            _remove_secrets(pipeline.secrets_file, say)


def _remove_secrets(file: Path, say: Say) -> None:
    """A Secret of Kubernetes is mounted read-only, also where Towpath owns the connectors: what is in it stays."""
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        if file.exists():
            say(f"left the file {file}: {error.strerror}")


def _delete_topics(session: Session, names: Collection[str], say: Say) -> None:
    if session.pipeline.kafka.topics == "exist":
        for name in names:
            say(f"left the topic {name}: delete it, and create it again before the next deployment")
        return
    session.topics.delete(names)
    for name in names:
        say(f"deleted topic {name}")


def _forget_verdict(session: Session, say: Say) -> None:
    """Remove the last verdict and the registration, all that plain mode stores at the destination, if it answers."""
    try:
        with session.destination.briefly() as client:
            verdict.forget(client, session.pipeline)
            writers.forget(client, session.pipeline.name)
    except MongoUnreachable as error:
        say(f"the last verdict and the registration in towpath.{WRITERS} stay at the destination: {error}")


def _note(session: Session, ids: Mapping[str, str], say: Say, *, removed: bool = False) -> None:
    """Store what is known of topics (name → id) for a later removal of the log; with `removed`, no sink is left."""
    try:
        with session.destination.briefly() as client:
            writers.note(client, session.pipeline.name, ids, removed=removed)
    except MongoUnreachable as error:
        if removed:
            say(f"the destination still has {session.pipeline.name} registered in towpath.{WRITERS}: {error}")


def refuse_change(pipeline: Pipeline, what: str) -> None:
    """Raise `Refused` where an operator owns the connectors, for a command that creates connectors or changes them."""
    if pipeline.has_operator:
        raise Refused(
            f"{what} changes or adds connectors of {pipeline.name}, and Strimzi's operator, which owns them, would undo"
            " that",
            'let the operator pause, and set [connect] owner = "towpath" for that time'
            " (docs/how-to/kubernetes.md#what-changes-connectors)",
        )


def refuse_state(pipeline: Pipeline, state: Literal["running", "paused", "stopped"]) -> None:
    """Raise `Refused` where an operator owns the connectors: it sets their state, as their resources say."""
    if pipeline.has_operator:
        raise Refused(
            f"Strimzi's operator owns the connectors of {pipeline.name}, and sets their state",
            in_state(pipeline, state),
        )


def refuse_removal(pipeline: Pipeline, connect: Connect, *, log: bool) -> None:
    """Raise `Refused` where an operator would make removed connectors again.

    The log and the positions can be removed once the operator has stopped the connectors.
    """
    if not pipeline.has_operator:
        return
    if not log:
        raise Refused(
            f"Strimzi's operator owns the connectors of {pipeline.name}, and would make them again",
            f"run: {removal(pipeline)}",
        )
    existing = [status for status in statuses(connect, pipeline.connectors) if status.state != "MISSING"]
    if any(status.state != "STOPPED" for status in existing):
        raise Refused(
            f"the connectors of {pipeline.name} are not stopped, and Strimzi's operator owns them",
            f"{in_state(pipeline, 'stopped')}; then run this again",
        )


def in_state(pipeline: Pipeline, state: Literal["running", "paused", "stopped"]) -> str:
    """What to run so that the operator brings the connectors into a state."""
    patch = f'\'{{"spec":{{"state":"{state}"}}}}\''
    return "run: " + "; ".join(f"kubectl patch {name} --type merge -p {patch}" for name in _resources(pipeline))


def removal(pipeline: Pipeline) -> str:
    """What to run so that the operator removes the connectors."""
    return f"kubectl delete {' '.join(_resources(pipeline))}"


def _resources(pipeline: Pipeline) -> Iterable[str]:
    return [f"kafkaconnector/{name}" for name in pipeline.connectors]
