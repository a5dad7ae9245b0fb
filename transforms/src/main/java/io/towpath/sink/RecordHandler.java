package io.towpath.sink;

import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.sink.cdc.CdcHandler;
import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import io.towpath.record.Change;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BsonDocument;
import org.bson.BsonTimestamp;
import org.bson.BsonValue;

/** Turns each record of the contract into one write of mongo-kafka's sink. */
public final class RecordHandler extends CdcHandler {
    private static final String ID = "_id";
    private static final BsonTimestamp FILLED_IN_BY_SERVER = new BsonTimestamp(0, 0);

    public RecordHandler(MongoSinkTopicConfig config) {
        super(config);
    }

    @Override
    public Optional<WriteModel<BsonDocument>> handle(SinkDocument record) {
        BsonValue id = record.getKeyDoc()
                .map(key -> key.get(ID))
                .orElseThrow(() -> new DataException("topic %s: a record without {_id: …} as its key"
                        .formatted(getConfig().getTopic())));
        return Optional.of(write(id, change(id, record)));
    }

    private Change change(BsonValue id, SinkDocument record) {
        try {
            return Change.of(record.getValueDoc().orElse(null));
        } catch (DataException error) {
            throw new DataException(
                    "topic %s, _id %s: %s".formatted(getConfig().getTopic(), id, error.getMessage()), error);
        }
    }

    private static WriteModel<BsonDocument> write(BsonValue id, Change change) {
        if (change instanceof Change.Document document) return replace(document.document());
        if (change instanceof Change.Update update) return update(filter(id), update);
        return new DeleteOneModel<>(filter(id));
    }

    private static WriteModel<BsonDocument> replace(BsonDocument document) {
        BsonDocument filter = filter(document.get(ID));
        if (document.entrySet().stream().anyMatch(RecordHandler::isChangedByReplace)) {
            BsonDocument stage = new BsonDocument("$replaceWith", new BsonDocument("$literal", document));
            return new UpdateOneModel<>(filter, List.of(stage), new UpdateOptions().upsert(true));
        }
        return new ReplaceOneModel<>(filter, document, new ReplaceOptions().upsert(true));
    }

    /** A replace refuses names that begin with $, and puts the server's time where it finds an empty timestamp. */
    private static boolean isChangedByReplace(Map.Entry<String, BsonValue> field) {
        return field.getKey().startsWith("$")
                || (field.getValue().equals(FILLED_IN_BY_SERVER)
                        && !field.getKey().equals(ID));
    }

    private static WriteModel<BsonDocument> update(BsonDocument filter, Change.Update update) {
        Optional<List<BsonDocument>> total = ClassicUpdate.isSafe(update) ? Optional.empty() : TotalUpdate.of(update);
        return total.<WriteModel<BsonDocument>>map(pipeline -> new UpdateOneModel<>(filter, pipeline))
                .orElseGet(() -> new UpdateOneModel<>(filter, ClassicUpdate.of(update)));
    }

    private static BsonDocument filter(BsonValue id) {
        return new BsonDocument(ID, id.isDocument() ? new BsonDocument("$eq", id) : id);
    }
}
