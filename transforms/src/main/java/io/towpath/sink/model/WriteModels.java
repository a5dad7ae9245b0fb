package io.towpath.sink;

import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.WriteModel;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.util.List;
import java.util.Optional;
import org.bson.BSONException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** The driver's writes for the parts of the record contract. */
final class WriteModels {

    private WriteModels() {}

    /** A new document. Its bytes are stored as they are only when {@link #mustBeLiteral} says no. */
    static WriteModel<BsonDocument> insert(byte[] document) {
        return new InsertOneModel<>(new RawBsonDocument(document));
    }

    /** The document that has this one's {@code _id} is now this one, byte for byte. */
    static WriteModel<BsonDocument> replace(byte[] value) {
        BsonDocument filter = IdFilter.of(value).orElseThrow();
        RawBsonDocument document = new RawBsonDocument(value);
        if (mustBeLiteral(value)) {
            BsonDocument stage = new BsonDocument("$replaceWith", new BsonDocument("$literal", document));
            return new UpdateOneModel<>(filter, List.of(raw(stage)), new UpdateOptions().upsert(true));
        }
        return new ReplaceOneModel<>(filter, document, new ReplaceOptions().upsert(true));
    }

    /** A replace refuses names that begin with $; and it puts the server's time, as an insert does, where it finds an empty timestamp. */
    static boolean mustBeLiteral(byte[] document) {
        BsonElements elements = new BsonElements(document, 0);
        while (elements.next()) {
            boolean isEmptyTimestamp = elements.type() == BsonElements.TIMESTAMP && elements.int64(0) == 0;
            if (document[elements.nameStart()] == '$' || (isEmptyTimestamp && !elements.nameIs(BsonElements.ID)))
                return true;
        }
        return false;
    }

    /** An update that may meet a document newer or older than the one that was updated at the source. */
    static WriteModel<BsonDocument> repeatable(BsonDocument filter, Change.Update update) {
        return ClassicUpdate.isSafe(update) ? classic(filter, update) : total(filter, update);
    }

    private static WriteModel<BsonDocument> classic(BsonDocument filter, Change.Update update) {
        return new UpdateOneModel<>(filter, raw(ClassicUpdate.of(update)));
    }

    /** An update that sets what it names whatever the document looks like, and gives new fields the order that they are listed in. */
    static WriteModel<BsonDocument> total(BsonDocument filter, Change.Update update) {
        return pipeline(update)
                .<WriteModel<BsonDocument>>map(pipeline -> new UpdateOneModel<>(
                        filter, pipeline.stream().map(WriteModels::raw).toList()))
                .orElseGet(() -> classic(filter, update));
    }

    /** Empty also for values that the driver cannot decode: the operators carry their bytes. */
    private static Optional<List<BsonDocument>> pipeline(Change.Update update) {
        try {
            return TotalUpdate.of(update);
        } catch (BSONException undecodable) {
            return Optional.empty();
        }
    }

    /** The driver copies the bytes of a document that is raw as a whole only. */
    private static RawBsonDocument raw(BsonDocument document) {
        return new RawBsonDocument(BsonBytes.of(document));
    }
}
