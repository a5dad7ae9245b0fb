package io.towpath.sink;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.sink.cdc.CdcHandler;
import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** Turns each record of the contract into one write of mongo-kafka's sink. Works with {@link TopicNamespaceMapper} only. */
public final class RecordHandler extends CdcHandler {
    private static final byte[] ID = "_id".getBytes(US_ASCII);

    public RecordHandler(MongoSinkTopicConfig config) {
        super(config);
    }

    @Override
    public Optional<WriteModel<BsonDocument>> handle(SinkDocument decoded) {
        RawRecord record = RawRecord.in(decoded)
                .orElseThrow(() -> broken("a record without {_id: …} as its key, or namespace.mapper is not %s"
                        .formatted(TopicNamespaceMapper.class.getName())));
        BsonDocument filter =
                IdFilter.of(record.key()).orElseThrow(() -> broken("a record without {_id: …} as its key"));
        return Optional.of(write(filter, record.value()));
    }

    private WriteModel<BsonDocument> write(BsonDocument filter, byte[] value) {
        try {
            Change change = Change.decode(value);
            if (change instanceof Change.Document) return replace(value);
            if (change instanceof Change.Update update) return update(filter, update);
            return new DeleteOneModel<>(filter);
        } catch (DataException error) {
            throw broken("%s: %s".formatted(filter, error.getMessage()));
        }
    }

    private DataException broken(String what) {
        return new DataException("topic %s: %s".formatted(getConfig().getTopic(), what));
    }

    private static WriteModel<BsonDocument> replace(byte[] value) {
        BsonDocument filter = IdFilter.of(value).orElseThrow();
        RawBsonDocument document = new RawBsonDocument(value);
        if (isChangedByReplace(value)) {
            BsonDocument stage = new BsonDocument("$replaceWith", new BsonDocument("$literal", document));
            return new UpdateOneModel<>(filter, List.of(stage), new UpdateOptions().upsert(true));
        }
        return new ReplaceOneModel<>(filter, document, new ReplaceOptions().upsert(true));
    }

    /** A replace refuses names that begin with $, and puts the server's time where it finds an empty timestamp. */
    private static boolean isChangedByReplace(byte[] document) {
        BsonElements elements = new BsonElements(document, 0);
        while (elements.next()) {
            boolean isEmptyTimestamp = elements.type() == BsonElements.TIMESTAMP && elements.int64(0) == 0;
            if (document[elements.nameStart()] == '$' || (isEmptyTimestamp && !elements.nameIs(ID))) return true;
        }
        return false;
    }

    private static WriteModel<BsonDocument> update(BsonDocument filter, Change.Update update) {
        Optional<List<BsonDocument>> total = ClassicUpdate.isSafe(update) ? Optional.empty() : TotalUpdate.of(update);
        return total.<WriteModel<BsonDocument>>map(pipeline -> new UpdateOneModel<>(filter, pipeline))
                .orElseGet(() -> new UpdateOneModel<>(filter, ClassicUpdate.of(update)));
    }
}
