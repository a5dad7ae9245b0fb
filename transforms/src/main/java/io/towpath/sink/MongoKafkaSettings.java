package io.towpath.sink;

import io.towpath.connector.InheritedSettings;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import java.util.List;

/** What {@link MongoSink} does with the settings of Connect, mongo-kafka and Kafka's clients. */
public final class MongoKafkaSettings {
    private static final String OWN_WRITES =
            "MongoSink decides itself what it writes, in which order and in which transaction";

    public static final InheritedSettings RULES = new InheritedSettings()
            .connect()
            .clients()
            .passesOn(
                    "topics",
                    "topics.regex",
                    "errors.tolerance",
                    "errors.deadletterqueue.topic.name",
                    "errors.deadletterqueue.topic.replication.factor",
                    "errors.deadletterqueue.context.headers.enable",
                    "connection.uri",
                    "connection.ssl.*",
                    "database",
                    "server.api.*",
                    "mongo.custom.auth.*")
            .requires(
                    "namespace.mapper",
                    List.of(TopicNamespaceMapper.class.getName()),
                    "the topic's name says where its documents belong")
            .requires(
                    "change.data.capture.handler",
                    List.of(RecordHandler.class.getName()),
                    "the log has records of a separate form")
            .rejects(
                    "the topic's name says where its documents belong",
                    "collection",
                    "namespace.mapper.*",
                    "topic.override.*")
            .rejects(
                    OWN_WRITES,
                    "bulk.write.ordered",
                    "max.batch.size",
                    "rate.limiting.*",
                    "writemodel.strategy",
                    "delete.on.null.values",
                    "delete.writemodel.strategy",
                    "provider")
            .rejects(
                    "documents and their _ids are written as the source had them",
                    "document.id.strategy",
                    "document.id.strategy.*",
                    "post.processor.chain",
                    "field.renamer.*",
                    "key.projection.*",
                    "value.projection.*",
                    "csfle.*")
            .rejects("MongoSink creates no collection of that kind", "timeseries.*")
            .rejects(
                    "errors.tolerance and towpath.refused.percent say what is done with a record that cannot be applied",
                    "mongo.errors.*");

    private MongoKafkaSettings() {}
}
