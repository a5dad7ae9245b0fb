package io.towpath.sink.plain;

import com.mongodb.MongoNamespace;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import com.mongodb.kafka.connect.sink.namespace.mapping.NamespaceMapper;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/** The namespace is in the topic's name: {@code <prefix>.<database>.<collection>}, where only the collection may hold dots. */
public final class TopicNamespaceMapper implements NamespaceMapper {
    /** A JSON object: a namespace at the source to its name at the destination. */
    public static final String RENAME = "towpath.rename";

    private final Map<String, MongoNamespace> renamed = new HashMap<>();

    @Override
    public void configure(MongoSinkTopicConfig configuration) {
        Object rename = configuration.originals().get(RENAME);
        if (rename != null) renamed.putAll(parse(RENAME, rename));
    }

    /** Throws {@link ConfigException} on anything but a JSON object of namespaces. */
    public static Map<String, MongoNamespace> parse(String name, Object rename) {
        Map<String, MongoNamespace> parsed = new HashMap<>();
        try {
            BsonDocument.parse(rename.toString())
                    .forEach((from, to) -> parsed.put(
                            new MongoNamespace(from).getFullName(),
                            new MongoNamespace(to.asString().getValue())));
            return parsed;
        } catch (RuntimeException error) {
            throw new ConfigException(
                    name, rename, "must be a JSON object of namespaces, like {\"shop.orders\": \"archive.orders\"}");
        }
    }

    @Override
    public MongoNamespace getNamespace(SinkRecord record, SinkDocument document) {
        RecordHandler.RawRecord.attach(record, document);
        return namespace(record.topic());
    }

    public MongoNamespace namespace(String topic) {
        int database = topic.indexOf('.') + 1;
        int collection = topic.indexOf('.', database) + 1;
        if (database < 2 || collection - database < 2 || collection == topic.length()) {
            throw new DataException(
                    "topic '%s' names no namespace: <prefix>.<database>.<collection> expected".formatted(topic));
        }
        String namespace = topic.substring(database);
        MongoNamespace target = renamed.get(namespace);
        return target != null
                ? target
                : new MongoNamespace(topic.substring(database, collection - 1), topic.substring(collection));
    }
}
