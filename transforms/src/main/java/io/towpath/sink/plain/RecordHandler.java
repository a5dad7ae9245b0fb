package io.towpath.sink.plain;

import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.WriteModel;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.sink.cdc.CdcHandler;
import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.ContractException;
import io.towpath.sink.model.IdFilter;
import io.towpath.sink.model.WriteModels;
import java.util.Arrays;
import java.util.Optional;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BSONException;
import org.bson.BsonDocument;

/** Converts each record of the contract to one write of mongo-kafka's sink. Requires {@link TopicNamespaceMapper}. */
public class RecordHandler extends CdcHandler {
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
}
