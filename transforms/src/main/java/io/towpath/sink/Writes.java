package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import io.towpath.fold.Folded;
import io.towpath.fold.Steps;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.RecordHeaders;
import io.towpath.record.WholeBson;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BSONException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

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

    /** What a record says. Throws {@link DataException} when it breaks the contract. */
    RecordedChange read(SinkRecord record) {
        MongoNamespace namespace = namespaces.computeIfAbsent(record.topic(), this::namespaceOf);
        try {
            return said(record, namespace);
        } catch (DataException | BSONException error) {
            throw new DataException("no record of Towpath's: " + error.getMessage(), error);
        }
    }

    private RecordedChange said(SinkRecord record, MongoNamespace namespace) {
        Writes.header(record, RecordHeaders.VERSION).ifPresent(Writes::requireKnown);
        if (!(record.key() instanceof byte[] key)) throw new DataException("its key is not {_id: …} in bytes");
        if (record.value() != null && !(record.value() instanceof byte[]))
            throw new DataException("its value is not bytes");
        BsonDocument filter = filter(key);
        Change change = Change.decode((byte[]) record.value());
        if (change instanceof Change.Document && !Arrays.equals(CanonicalKey.of((byte[]) record.value()), key))
            throw new DataException("its document has another _id than its key");
        Steps steps = change instanceof Change.Update update ? Steps.of(update) : null;
        boolean isNew = change instanceof Change.Document && isNew(record);
        return new RecordedChange(record, namespace, ByteBuffer.wrap(key), filter, change, steps, isNew);
    }

    /** Who keeps the contract need not give its version; what another version means, nobody here knows. */
    private static void requireKnown(String version) {
        if (!version.equals(RecordHeaders.CONTRACT))
            throw new DataException("its header v is '%.20s', and this sink knows version %s only"
                    .formatted(version, RecordHeaders.CONTRACT));
    }

    /** Any other key of the document would have a place of its own in a wave, and most likely lies in another partition. */
    private static BsonDocument filter(byte[] key) {
        try {
            WholeBson.require(key);
        } catch (DataException error) {
            throw new DataException("its key: " + error.getMessage(), error);
        }
        BsonDocument filter = IdFilter.of(key).orElseThrow(() -> new DataException("its key has no _id"));
        if (!Arrays.equals(CanonicalKey.of(key), key))
            throw new DataException("its key is not {_id: …} alone, in the canonical form");
        return filter;
    }

    /** A change as a write of its own. */
    static Write of(RecordedChange change) {
        List<RecordedChange> alone = List.of(change);
        if (change.change() instanceof Change.Document) return document(alone, change.value(), change.isNew());
        if (change.change() instanceof Change.Update update) {
            if (change.steps().areOperators())
                return operators(alone, change.steps().operators());
            WriteModel<BsonDocument> model = WriteModels.total(change.filter(), update);
            return write(alone, Write.Kind.CHANGE, model, change.value().length, false);
        }
        return delete(alone, false);
    }

    /**
     * What several changes of one document come to, as a write.
     *
     * @param isNew whether the document is not at the destination yet
     */
    static Write of(List<RecordedChange> changes, Folded folded, boolean isNew) {
        if (folded instanceof Folded.Document document) return document(changes, document.bytes(), isNew);
        if (folded instanceof Folded.Operators operators) return operators(changes, operators.bytes());
        return delete(changes, isNew);
    }

    private static Write document(List<RecordedChange> changes, byte[] document, boolean isNew) {
        return isNew && !WriteModels.mustBeLiteral(document)
                ? write(changes, Write.Kind.INSERT, WriteModels.insert(document), document.length, false)
                : write(changes, Write.Kind.CHANGE, WriteModels.replace(document), document.length, false);
    }

    private static Write operators(List<RecordedChange> changes, byte[] operators) {
        WriteModel<BsonDocument> model = new UpdateOneModel<>(changes.get(0).filter(), new RawBsonDocument(operators));
        return write(changes, Write.Kind.CHANGE, model, operators.length, false);
    }

    private static Write delete(List<RecordedChange> changes, boolean mayMiss) {
        return write(
                changes, Write.Kind.DELETE, new DeleteOneModel<>(changes.get(0).filter()), 0, mayMiss);
    }

    private static Write write(
            List<RecordedChange> changes, Write.Kind kind, WriteModel<BsonDocument> model, int bytes, boolean mayMiss) {
        RecordedChange first = changes.get(0);
        List<SinkRecord> records = changes.stream().map(RecordedChange::record).toList();
        return new Write(records, first.namespace(), first.id(), kind, model, bytes, mayMiss);
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
}
