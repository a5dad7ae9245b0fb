package io.towpath.sink;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import io.towpath.connector.TextHeaders;
import io.towpath.fold.Fold;
import io.towpath.fold.Steps;
import io.towpath.record.Change;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import io.towpath.sink.model.WriteModels;
import io.towpath.sink.plain.TopicNamespaceMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BSONException;
import org.bson.BsonDocument;

/** Converts records to writes by mongo-kafka's settings for their topics, on the records' own bytes. */
final class Writes {
    private static final String ROW = "r";
    private static final Set<String> NEW = Set.of("c", ROW);

    /** The records of a topic with this value of the header op. */
    private record TopicOperation(String topic, String operation) {}

    private final MongoSinkConfig config;
    private final Map<String, MongoNamespace> namespaces = new HashMap<>();
    private final Set<TopicOperation> present = new HashSet<>();

    Writes(MongoSinkConfig config) {
        this.config = config;
    }

    /** The change in a record. Throws {@link DataException} when the record breaks the contract. */
    RecordedChange read(SinkRecord record) {
        MongoNamespace namespace = namespace(record.topic());
        try {
            return decode(record, namespace);
        } catch (DataException | ContractException | BSONException error) {
            throw new DataException("no record of Towpath's: " + error.getMessage(), error);
        }
    }

    private RecordedChange decode(SinkRecord record, MongoNamespace namespace) {
        TextHeaders.requireKnown(record);
        if (!(record.key() instanceof byte[] key)) throw new DataException("its key is not {_id: …} in bytes");
        if (record.value() != null && !(record.value() instanceof byte[]))
            throw new DataException("its value is not bytes");
        Change change = Change.decode(key, (byte[]) record.value());
        Steps steps = change instanceof Change.Update update ? Steps.of(update) : null;
        boolean isNew = change instanceof Change.Document && isNew(record);
        boolean isInsert = isNew && !WriteModels.mustBeLiteral((byte[]) record.value());
        return new RecordedChange(record, new Write.DocumentId(namespace, key), change, steps, isNew, isInsert);
    }

    /** A change as separate writes, often one. */
    static List<Write> of(RecordedChange change) {
        List<RecordedChange> changes = List.of(change);
        if (change.isInsert()) return List.of(insert(changes, change.value()));
        if (change.change() instanceof Change.Document) return replace(changes, change.value());
        if (!(change.change() instanceof Change.Update update)) return List.of(delete(changes, false));
        boolean areOperators = change.steps().areOperators();
        List<Write> writes = new ArrayList<>();
        Steps steps = areOperators ? change.steps() : change.steps().splices();
        steps.updates().forEach(each -> writes.add(update(changes, each)));
        if (!areOperators && !update.withoutSplices().isEmpty()) {
            WriteModel<BsonDocument> model = WriteModels.total(change.filter(), update.withoutSplices());
            writes.add(write(changes, Write.Kind.CHANGE, model, change.value().length, false));
        }
        return writes;
    }

    /**
     * Writes that have the effect of several changes of one document.
     *
     * @param isNew whether the document is not at the destination yet
     */
    static List<Write> of(List<RecordedChange> changes, Fold.Folded folded, boolean isNew) {
        if (folded instanceof Fold.Folded.Document document)
            return isNew && !WriteModels.mustBeLiteral(document.bytes())
                    ? List.of(insert(changes, document.bytes()))
                    : replace(changes, document.bytes());
        if (folded instanceof Fold.Folded.Update update) return List.of(update(changes, update));
        return List.of(delete(changes, isNew));
    }

    private static Write insert(List<RecordedChange> changes, byte[] document) {
        return write(changes, Write.Kind.INSERT, WriteModels.insert(document), document.length, false);
    }

    private static List<Write> replace(List<RecordedChange> changes, byte[] document) {
        Write replace = write(changes, Write.Kind.CHANGE, WriteModels.replace(document), document.length, false);
        // a pipeline over a document may abort mongod: SingleNames says when
        return WriteModels.mustBeLiteral(document) ? List.of(delete(changes, true), replace) : List.of(replace);
    }

    private static Write update(List<RecordedChange> changes, Fold.Folded.Update update) {
        WriteModel<BsonDocument> model = WriteModels.update(changes.get(0).filter(), update);
        return new Write(
                records(changes),
                changes.get(0).document(),
                Write.Kind.CHANGE,
                model,
                update.bytes().length,
                false,
                update.lengths(),
                update.isStage());
    }

    private static Write delete(List<RecordedChange> changes, boolean mayMiss) {
        return write(
                changes, Write.Kind.DELETE, new DeleteOneModel<>(changes.get(0).filter()), 0, mayMiss);
    }

    private static Write write(
            List<RecordedChange> changes, Write.Kind kind, WriteModel<BsonDocument> model, int bytes, boolean mayMiss) {
        return new Write(records(changes), changes.get(0).document(), kind, model, bytes, mayMiss);
    }

    private static List<SinkRecord> records(List<RecordedChange> changes) {
        return changes.size() == 1
                ? List.of(changes.get(0).record())
                : changes.stream().map(RecordedChange::record).toList();
    }

    /** The destination already holds documents that the record's topic reports as new: from now on such records replace them. */
    void markPresent(SinkRecord record) {
        present.add(new TopicOperation(record.topic(), operation(record)));
    }

    /** A schema change has been made: the topic's collection is empty, or holds the documents that come again as rows. */
    void changed(String topic, boolean isFilled) {
        present.removeIf(known -> known.topic.equals(topic));
        if (isFilled) present.add(new TopicOperation(topic, ROW));
    }

    /** The namespace of a topic's documents at the destination. */
    MongoNamespace namespace(String topic) {
        return namespaces.computeIfAbsent(topic, this::namespaceOf);
    }

    /** The namespace of the record's document at the destination; empty when its topic names none. */
    String namespace(SinkRecord record) {
        MongoNamespace namespace = namespaces.get(record.topic());
        return namespace == null ? "" : namespace.getFullName();
    }

    private boolean isNew(SinkRecord record) {
        String operation = operation(record);
        return NEW.contains(operation)
                && (present.isEmpty() || !present.contains(new TopicOperation(record.topic(), operation)));
    }

    private static String operation(SinkRecord record) {
        return TextHeaders.read(record, RecordHeaders.Part.OPERATION).orElse("");
    }

    private MongoNamespace namespaceOf(String topic) {
        MongoSinkTopicConfig settings = config.getMongoSinkTopicConfig(topic);
        if (settings.getNamespaceMapper() instanceof TopicNamespaceMapper mapper) return mapper.namespace(topic);
        throw new ConfigException(
                MongoSinkTopicConfig.NAMESPACE_MAPPER_CONFIG,
                settings.getNamespaceMapper().getClass().getName(),
                "must be %s: one topic, one namespace".formatted(TopicNamespaceMapper.class.getName()));
    }

    /**
     * What one record says about a document at the destination.
     *
     * @param steps of an update; null for other changes
     * @param isNew whether, by the topic, the document is not at the destination yet
     * @param isInsert whether it is new, and an insert stores its bytes as they are
     */
    record RecordedChange(
            SinkRecord record, Write.DocumentId document, Change change, Steps steps, boolean isNew, boolean isInsert) {
        /** Matches the document. */
        BsonDocument filter() {
            return WriteModels.filter(document.id()).orElseThrow();
        }

        /** Whether folding the change alone would make nothing else of it. */
        boolean isOneWrite() {
            return steps == null || steps.areOperators();
        }

        /** The record's value; null for a delete. */
        byte[] value() {
            return (byte[]) record.value();
        }
    }
}
