package io.towpath.sink.plain;

import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.sink.cdc.CdcHandler;
import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import io.towpath.connector.TextHeaders;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.Chunks;
import io.towpath.record.ContractException;
import io.towpath.record.SchemaChange;
import io.towpath.sink.model.WriteModels;
import java.util.Arrays;
import java.util.Optional;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BSONException;
import org.bson.BsonBinary;
import org.bson.BsonDocument;

/** Converts each record of the contract to one write of mongo-kafka's sink. Requires {@link TopicNamespaceMapper}. */
public final class RecordHandler extends CdcHandler {
    public RecordHandler(MongoSinkTopicConfig config) {
        super(config);
    }

    @Override
    public Optional<WriteModel<BsonDocument>> handle(SinkDocument decoded) {
        RawRecord record = RawRecord.in(decoded)
                .orElseThrow(() -> broken("a record without {_id: …} as its key, or namespace.mapper is not %s"
                        .formatted(TopicNamespaceMapper.class.getName())));
        if (SchemaChange.isKey(record.key()))
            throw new SchemaRecordError(getConfig().getTopic());
        if (Chunks.isKey(record.key()))
            throw broken("a chunk of a large value: only MongoSink puts chunks together (mode \"exactly-once\")");
        BsonDocument filter =
                WriteModels.filter(record.key()).orElseThrow(() -> broken("a record without {_id: …} as its key"));
        return Optional.of(write(filter, record));
    }

    private WriteModel<BsonDocument> write(BsonDocument filter, RawRecord record) {
        byte[] value = record.value();
        try {
            Change change = Change.decode(value);
            if (change instanceof Change.Document
                    && !Arrays.equals(CanonicalKey.of(value), CanonicalKey.of(record.key())))
                throw new DataException("the document has another _id than the key");
            if (change instanceof Change.Document) return WriteModels.replace(value);
            if (change instanceof Change.Update update) return WriteModels.repeatable(filter, update);
            return new DeleteOneModel<>(filter);
        } catch (DataException | ContractException | BSONException error) {
            throw broken("%s: %s".formatted(filter, error.getMessage()));
        }
    }

    private DataException broken(String message) {
        return new DataException("topic %s: %s".formatted(getConfig().getTopic(), message));
    }

    /** What follows a schema change must not be applied without it, and mongo-kafka makes a dead letter of a record after any exception. */
    static final class SchemaRecordError extends Error {
        private static final long serialVersionUID = 1;

        private SchemaRecordError(String topic) {
            super("TWP-SCHEMA-RECORD: topic %s has schema changes, which mode \"plain\" cannot apply".formatted(topic));
        }
    }

    /**
     * The bytes of a record on their way from the mapper, which gets the record from mongo-kafka, to the handler, which gets only decoded
     * documents. They travel in the decoded key, which belongs to this record alone. So nothing is lost in decoding: duplicate names,
     * strings that are not UTF-8, the order of a regex's options.
     *
     * @param key {@code {_id: …}}
     * @param value a document, an update, or null
     */
    record RawRecord(byte[] key, byte[] value) {
        private static final String KEY = "towpath.key";
        private static final String VALUE = "towpath.value";

        /** Throws {@link ContractException} for a record of another version of the contract. */
        static void attach(SinkRecord record, SinkDocument decoded) {
            BsonDocument keyDocument = decoded.getKeyDoc().orElse(null);
            if (keyDocument == null || !(record.key() instanceof byte[] key)) return;
            if (!SchemaChange.isKey(key)) TextHeaders.requireKnown(record);
            keyDocument.put(KEY, new BsonBinary(key));
            if (record.value() instanceof byte[] value) keyDocument.put(VALUE, new BsonBinary(value));
        }

        /** Empty when nothing was attached. */
        static Optional<RawRecord> in(SinkDocument decoded) {
            return decoded.getKeyDoc()
                    .filter(document -> document.containsKey(KEY))
                    .map(document -> new RawRecord(
                            document.getBinary(KEY).getData(),
                            document.containsKey(VALUE)
                                    ? document.getBinary(VALUE).getData()
                                    : null));
        }
    }
}
