package io.towpath.sink.model;

import static io.towpath.sink.model.Expressions.op;
import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.WriteModel;
import io.towpath.fold.Fold;
import io.towpath.fold.Steps;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BSONException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;

/** The driver's write models for the changes of the record contract. */
public final class WriteModels {
    private static final byte[] EQ = "$eq".getBytes(US_ASCII);

    private WriteModels() {}

    /** The filter that matches the {@code _id} of a document or key byte for byte; empty when it has none. */
    public static Optional<BsonDocument> filter(byte[] document) {
        return BsonElements.atId(document).map(id -> new RawBsonDocument(filter(document, id)));
    }

    private static byte[] filter(byte[] document, BsonElements id) {
        int start = id.valueStart();
        int end = id.valueEnd();
        if (id.type() != BsonElements.DOCUMENT)
            return BsonBytes.ofField(id.type(), BsonElements.ID, document, start, end);
        // compared as a whole, so that the server takes no name in it for an operator
        byte[] compared = BsonBytes.ofField(BsonElements.DOCUMENT, EQ, document, start, end);
        return BsonBytes.ofField(BsonElements.DOCUMENT, BsonElements.ID, compared, 0, compared.length);
    }

    /** A new document. The server stores its bytes unchanged only where {@link #mustBeLiteral} is false. */
    public static WriteModel<BsonDocument> insert(byte[] document) {
        return new InsertOneModel<>(new RawBsonDocument(document));
    }

    /** Replaces the document with the same {@code _id}, byte for byte, or inserts this one. Where {@link #mustBeLiteral}, by a pipeline. */
    public static WriteModel<BsonDocument> replace(byte[] value) {
        BsonDocument filter = filter(value).orElseThrow();
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

    /**
     * An update of a document in the state that the source updated: it does not find one whose arrays have other lengths, or, for a stage,
     * where a name on the way to them is twice.
     */
    public static WriteModel<BsonDocument> update(BsonDocument filter, Fold.Folded.Update update) {
        BsonDocument conditions = new BsonDocument();
        update.lengths().forEach((path, length) -> conditions.append(path, op("$size", new BsonInt32(length))));
        if (update.isStage())
            conditions.put("$expr", SingleNames.of(PathNode.of(update.lengths().keySet())));
        BsonDocument found = conditions.isEmpty() ? filter : both(filter, conditions);
        RawBsonDocument bytes = new RawBsonDocument(update.bytes());
        return update.isStage() ? new UpdateOneModel<>(found, List.of(bytes)) : new UpdateOneModel<>(found, bytes);
    }

    private static BsonDocument both(BsonDocument filter, BsonDocument conditions) {
        byte[] id = BsonBytes.of(filter);
        byte[] others = BsonBytes.of(conditions);
        int length = id.length + others.length - Integer.BYTES - 1;
        return new RawBsonDocument(ByteBuffer.allocate(length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putInt(length)
                .put(id, Integer.BYTES, id.length - Integer.BYTES - 1)
                .put(others, Integer.BYTES, others.length - Integer.BYTES)
                .array());
    }

    /** An update that may meet an older or a newer document than the source updated. Throws {@link DataException} for splices. */
    public static WriteModel<BsonDocument> repeatable(BsonDocument filter, Change.Update update) {
        if (!update.splices().isEmpty())
            throw new DataException(
                    "an update with splices of arrays, which only mode exactly-once can apply: choose that mode, or set "
                            + "[capture] splice_cache = 0, deploy, and copy the collection again");
        return areSafe(update) ? classic(filter, update) : total(filter, update);
    }

    private static WriteModel<BsonDocument> classic(BsonDocument filter, Change.Update update) {
        return new UpdateOneModel<>(filter, operators(update));
    }

    /** MongoDB's update operators. */
    public static BsonDocument operators(Change.Update update) {
        return new RawBsonDocument(Steps.of(update).operators());
    }

    /**
     * Whether the server accepts the operators for every document, and adds new fields in their listed order: there are only top-level
     * names, and those to set ascend in the server's order (except names that begin with a digit, as it sorts numbers by value).
     */
    private static boolean areSafe(Change.Update update) {
        return Stream.concat(update.set().keySet().stream(), update.unset().stream())
                        .allMatch(WriteModels::isPlainName)
                && update.truncations().isEmpty()
                && (update.set().size() <= 1 || ascends(update.set().keySet().iterator()));
    }

    private static boolean isPlainName(String path) {
        return !path.isEmpty() && !path.startsWith("$") && path.indexOf('.') < 0;
    }

    private static boolean ascends(Iterator<String> names) {
        byte[] last = new byte[0];
        while (names.hasNext()) {
            byte[] name = names.next().getBytes(UTF_8);
            if ((name[0] >= '0' && name[0] <= '9') || Arrays.compareUnsigned(last, name) > 0) return false;
            last = name;
        }
        return true;
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
