package io.towpath.sink.model;

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

/** The driver's write models for the changes of the record contract. */
public final class WriteModels {

    private WriteModels() {}

    /** A new document. The server stores its bytes unchanged only where {@link #mustBeLiteral} is false. */
    public static WriteModel<BsonDocument> insert(byte[] document) {
        return new InsertOneModel<>(new RawBsonDocument(document));
    }

    /** Replaces the document with the same {@code _id}, byte for byte, or inserts this one. */
    public static WriteModel<BsonDocument> replace(byte[] value) {
        BsonDocument filter = IdFilter.of(value).orElseThrow();
        RawBsonDocument document = new RawBsonDocument(value);
        if (mustBeLiteral(value)) {
            BsonDocument stage = new BsonDocument("$replaceWith", new BsonDocument("$literal", document));
            return new UpdateOneModel<>(filter, List.of(raw(stage)), new UpdateOptions().upsert(true));
        }
        return new ReplaceOneModel<>(filter, document, new ReplaceOptions().upsert(true));
    }

    /** A replace rejects names that begin with $, and fills empty timestamps with the server's time, as an insert does. */
    public static boolean mustBeLiteral(byte[] document) {
        BsonElements elements = new BsonElements(document, 0);
        while (elements.next()) {
            boolean isEmptyTimestamp = elements.type() == BsonElements.TIMESTAMP && elements.int64(0) == 0;
            if (document[elements.nameStart()] == '$' || (isEmptyTimestamp && !elements.nameIs(BsonElements.ID)))
                return true;
        }
        return false;
    }

    /** An update that may meet an older or a newer document than the source updated. */
    public static WriteModel<BsonDocument> repeatable(BsonDocument filter, Change.Update update) {
        return ClassicUpdate.isSafe(update) ? classic(filter, update) : total(filter, update);
    }

    private static WriteModel<BsonDocument> classic(BsonDocument filter, Change.Update update) {
        return new UpdateOneModel<>(filter, ClassicUpdate.of(update));
    }

    /** An update that works on every document, and adds new fields in their listed order. */
    public static WriteModel<BsonDocument> total(BsonDocument filter, Change.Update update) {
        return pipeline(update)
                .<WriteModel<BsonDocument>>map(pipeline -> new UpdateOneModel<>(
                        filter, pipeline.stream().map(WriteModels::raw).toList()))
                .orElseGet(() -> classic(filter, update));
    }

    /** Also empty for values that the driver cannot decode: the operators have their bytes. */
    private static Optional<List<BsonDocument>> pipeline(Change.Update update) {
        try {
            return TotalUpdate.of(update);
        } catch (BSONException undecodable) {
            return Optional.empty();
        }
    }

    /** The driver copies bytes only of a document that is raw as a whole. */
    private static RawBsonDocument raw(BsonDocument document) {
        return new RawBsonDocument(BsonBytes.of(document));
    }
}
