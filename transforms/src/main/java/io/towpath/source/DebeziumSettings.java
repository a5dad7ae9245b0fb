package io.towpath.source;

import io.towpath.connector.InheritedSettings;
import io.towpath.debezium.RawDocuments;
import java.util.List;

/** What {@link MongoSource} does with the settings of Connect, Debezium and Kafka's clients. */
public final class DebeziumSettings {
    static final String HOOK = "mongodb.authentication.class";
    private static final String SILENT = "what Debezium cannot read would be left out silently";
    static final String WHOLE_TRANSACTION =
            "rows and the offset behind them must be one transaction; otherwise a worker that is killed loses rows or repeats changes";
    private static final String TOPICS = "the topics of the log, of heartbeats and of offsets have fixed names";
    private static final String CONTENT = "documents are passed on unchanged";
    private static final String COPY = "Debezium takes no snapshot: MongoSource copies collections itself";
    private static final String NO_EFFECT = "it would have no effect: MongoSource does not use that part of Debezium";

    public static final InheritedSettings RULES = new InheritedSettings()
            .connect()
            .clients()
            .passesOn("topic.creation.*")
            .requires("exactly.once.support", List.of("required"), WHOLE_TRANSACTION)
            .requires("transaction.boundary", List.of("poll"), WHOLE_TRANSACTION)
            .rejects(WHOLE_TRANSACTION, "transaction.boundary.interval.ms")
            .rejects("what was captured so far is known from the workers' own offsets topic", "offsets.storage.topic")
            .requires("errors.tolerance", List.of("none"), "records with errors would be left out silently")
            .passesOn(
                    "topic.prefix",
                    "collection.include.list",
                    "collection.exclude.list",
                    "database.include.list",
                    "database.exclude.list",
                    "capture.mode",
                    "cursor.pipeline",
                    "cursor.max.await.time.ms",
                    "heartbeat.interval.ms",
                    "poll.interval.ms",
                    "max.batch.size",
                    "max.queue.size",
                    "max.queue.size.in.bytes",
                    "retriable.restart.connector.wait.ms",
                    "executor.shutdown.timeout.ms",
                    "connection.validation.timeout.ms",
                    "custom.metric.tags",
                    "custom.sanitize.pattern",
                    "statistics.metrics.enabled",
                    "mongodb.connection.string",
                    "mongodb.user",
                    "mongodb.password",
                    "mongodb.authsource",
                    "mongodb.connect.timeout.ms",
                    "mongodb.heartbeat.frequency.ms",
                    "mongodb.server.selection.timeout.ms",
                    "mongodb.socket.timeout.ms",
                    "mongodb.ssl.enabled",
                    "mongodb.ssl.invalid.hostname.allowed",
                    "mongodb.ssl.keystore",
                    "mongodb.ssl.keystore.password",
                    "mongodb.ssl.keystore.type",
                    "mongodb.ssl.truststore",
                    "mongodb.ssl.truststore.password",
                    "mongodb.ssl.truststore.type")
            .requires(HOOK, List.of(RawDocuments.class.getName()), "documents would lose their bytes and types")
            .requires("event.processing.failure.handling.mode", List.of("fail"), SILENT)
            .requires("cursor.oversize.handling.mode", List.of("fail"), SILENT)
            .rejects(SILENT, "cursor.oversize.skip.threshold", "skip.messages.without.change")
            .requires("skipped.operations", List.of("t", "none"), "changes would be left out silently")
            .requires("tombstones.on.delete", List.of("false"), "a delete is a tombstone already")
            .requires("snapshot.mode", List.of("no_data"), COPY)
            .rejects(COPY, "snapshot.*", "incremental.snapshot.*", "legacy.snapshot.max.threads")
            .requires(
                    "errors.max.retries",
                    List.of("-1", "0"),
                    "a stream that ends begins again without counting how often (-1), or never (0)")
            .requires(
                    "capture.scope",
                    List.of("deployment"),
                    "changes of other databases would be missing, though their collections are copied")
            .requires(
                    "capture.mode.full.update.type",
                    List.of("lookup"),
                    "an update without a post-image would have no document")
            .requires(
                    "filters.match.mode",
                    List.of("regex"),
                    "lists of collections are regular expressions wherever MongoSource reads them")
            .requires(
                    "cursor.pipeline.order",
                    List.of("internal_first"),
                    "the pipeline relies on Debezium's own stages before it")
            .rejects("the offsets say where the stream begins", "capture.start.op.time", "capture.target")
            .rejects(
                    TOPICS,
                    "topic.naming.strategy",
                    "topic.delimiter",
                    "topic.cache.size",
                    "topic.transaction",
                    "topic.heartbeat.name",
                    "topic.heartbeat.prefix",
                    "heartbeat.topics.prefix")
            .rejects(
                    "signals and notifications would be records between the changes, and a signal can start a snapshot",
                    "signal.*",
                    "notification.*")
            .rejects(
                    CONTENT,
                    "field.exclude.list",
                    "field.renames",
                    "converters",
                    "post.processors",
                    "event.converting.failure.handling.mode",
                    "binary.handling.mode",
                    "field.name.adjustment.mode",
                    "schema.name.adjustment.mode",
                    "sourceinfo.struct.maker",
                    "extended.headers.enabled")
            .rejects(
                    "transactions are not marked in the log",
                    "provide.transaction.metadata",
                    "transaction.metadata.factory")
            .rejects(
                    NO_EFFECT,
                    "guardrail.*",
                    "mongodb.poll.interval.ms",
                    "mongodb.task.id",
                    "openlineage.*",
                    "query.fetch.size",
                    "queue.provider.*",
                    "streaming.delay.ms")
            .rejects("Debezium does not document it", "internal.*");

    private DebeziumSettings() {}
}
