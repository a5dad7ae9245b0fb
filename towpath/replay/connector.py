"""A replay's connector: create it, run it again, remove it with all it needed."""

from __future__ import annotations

from datetime import UTC, datetime

from connectors.control import forget_offsets, statuses, wait_stopped
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.deploy import credentials
from towpath.deploy.deployment import put
from towpath.errors import MongoUnreachable
from towpath.mongo.client import REPLAY_SIDE, connected
from towpath.replay.plan import Replay, definition
from towpath.session import Session
from towpath.topic_settings import TOPIC_SETTINGS, retention_settings

_ADVICE = {"connection.uri": " (--destination; its user needs readWrite on the databases written and on towpath)"}


def begin(replay: Replay, session: Session) -> None:
    """Create what the replay needs, its connector last. Delete the positions of an earlier replay of this name."""
    topics, pipeline = session.topics, replay.pipeline
    settings = TOPIC_SETTINGS | retention_settings(pipeline.retention_ms)
    if replay.dead_letter_topic not in topics.all():
        topics.create(replay.dead_letter_topic, 1, pipeline.replication_factor, settings)
        session.say(f"created topic {replay.dead_letter_topic}")
    with connected(replay.sink.destination_uri, REPLAY_SIDE) as client:
        positions.forget(client, replay.sink)
        if replay.plan.forced:  # otherwise the sink stops where the beginning is gone
            positions.skip_to(client, replay.sink, replay.plan.late, datetime.now(UTC))
    write_secrets(replay)
    put(session.connect, replay.name, definition(replay), replay.secrets, _ADVICE)
    session.say(f"created connector {replay.name}")


def write_secrets(replay: Replay) -> bool:
    """Write the file from which the workers read the destination's URI; return whether it differed."""
    text = credentials.replay_properties(replay.sink, replay.destination.name)
    if differs := credentials.differs(replay.secrets, text):
        credentials.write(replay.secrets, text)
    return differs


def resume(replay: Replay, session: Session) -> None:
    """Run an existing replay again with the current URI: restart it if it has failed, resume it if it was stopped."""
    connect, say = session.connect, session.say
    if write_secrets(replay):
        connect.restart(replay.name, only_failed=False)
        say(f"wrote {replay.secrets} and restarted {replay.name}, for the new address or password")
    (connector,) = statuses(connect, [replay.name])
    if connector.failures:
        connect.restart(replay.name, only_failed=True)
        say(f"restarted {replay.name}, which had failed: {'; '.join(connector.failures)}")
    if connector.state in ("STOPPED", "PAUSED"):
        connect.resume(replay.name)
        say(f"resumed {replay.name}, which was {connector.state}")


def stop(replay: Replay, connect: Connect) -> None:
    """Stop the replay's connector; return when none of its tasks is left."""
    connect.stop(replay.name)
    wait_stopped(connect, replay.name)


def remove(replay: Replay, session: Session, *, keep_letters: bool) -> None:
    """Remove the replay: its connector, then its positions, secrets and dead-letter topic.

    With `keep_letters` the topic stays unless it is empty. If the destination does not answer, the positions stay
    there; the next replay of the same name deletes them.
    """
    connect, topics, say = session.connect, session.topics, session.say
    if connect.config(replay.name) is not None:
        stop(replay, connect)
        forget_offsets(connect, replay.name)
        connect.delete(replay.name)
        say(f"removed connector {replay.name}")
    if replay.uri is not None:
        try:
            with connected(replay.uri, REPLAY_SIDE) as client:
                positions.forget(client, replay.sink)
        except MongoUnreachable as error:
            say(f"{error}; the positions of {replay.name} stay there, in the database towpath")
    replay.secrets.unlink(missing_ok=True)
    topic = topics.all().get(replay.dead_letter_topic)
    if topic is not None and not (keep_letters and any(first < end for first, end in topics.ends([topic]).values())):
        topics.delete([topic.name])
        say(f"deleted topic {topic.name}")
