package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import io.towpath.record.Change;
import io.towpath.record.RecordHeaders;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/** Turns records into writes, as mongo-kafka's settings for their topics say, on the records' own bytes. */
final class Writes {
    private static final Set<String> NEW = Set.of("c", "r");

    /** What a topic says of documents: with this value of the header op. */
    private record Said(String topic, String operation) {}

    private final MongoSinkConfig config;
    private final Map<String, MongoNamespace> namespaces = new HashMap<>();
    private final Set<Said> present = new HashSet<>();

    Writes(MongoSinkConfig config) {
        this.config = config;
    }

    /** Throws {@link DataException} when the record breaks the contract. */
    Write of(SinkRecord record) {
        MongoNamespace namespace = namespaces.computeIfAbsent(record.topic(), this::namespaceOf);
        if (!(record.key() instanceof byte[] key)) throw broken("its key is not {_id: …} in bytes");
        if (record.value() != null && !(record.value() instanceof byte[])) throw broken("its value is not bytes");
        BsonDocument filter = IdFilter.of(key).orElseThrow(() -> broken("its key has no _id"));
        byte[] value = (byte[]) record.value();
        Change change = Change.decode(value);
        if (change instanceof Change.Document) {
            boolean isNew = isNew(record) && !WriteModels.mustBeLiteral(value);
            return isNew
                    ? new Write(record, namespace, id(key), Write.Kind.INSERT, WriteModels.insert(value))
                    : new Write(record, namespace, id(key), Write.Kind.CHANGE, WriteModels.replace(value));
        }
        return change instanceof Change.Update update
                ? new Write(record, namespace, id(key), Write.Kind.CHANGE, WriteModels.exact(filter, update))
                : new Write(record, namespace, id(key), Write.Kind.DELETE, new DeleteOneModel<>(filter));
    }

    /** The destination holds documents that the record's topic calls new: from now on such documents replace what is there. */
    void foundPresent(SinkRecord record) {
        present.add(new Said(record.topic(), operation(record)));
    }

    /** Where the record's document is at the destination; empty when its topic names no namespace. */
    String namespace(SinkRecord record) {
        MongoNamespace namespace = namespaces.get(record.topic());
        return namespace == null ? "" : namespace.getFullName();
    }

    static Optional<String> header(SinkRecord record, String name) {
        return Optional.ofNullable(record.headers().lastWithName(name))
                .map(header -> header.value() instanceof byte[] bytes
                        ? new String(bytes, UTF_8)
                        : String.valueOf(header.value()));
    }

    private boolean isNew(SinkRecord record) {
        String operation = operation(record);
        return NEW.contains(operation) && !present.contains(new Said(record.topic(), operation));
    }

    private static String operation(SinkRecord record) {
        return header(record, RecordHeaders.OPERATION).orElse("");
    }

    private MongoNamespace namespaceOf(String topic) {
        MongoSinkTopicConfig settings = config.getMongoSinkTopicConfig(topic);
        if (settings.getNamespaceMapper() instanceof TopicNamespaceMapper mapper) return mapper.namespace(topic);
        throw new ConfigException(
                MongoSinkTopicConfig.NAMESPACE_MAPPER_CONFIG,
                settings.getNamespaceMapper().getClass().getName(),
                "must be %s: one topic, one namespace".formatted(TopicNamespaceMapper.class.getName()));
    }

    private static ByteBuffer id(byte[] key) {
        return ByteBuffer.wrap(key);
    }

    private static DataException broken(String what) {
        return new DataException("no record of Towpath's: " + what);
    }
}
