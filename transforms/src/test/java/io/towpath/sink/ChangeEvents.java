package io.towpath.sink;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import io.towpath.fold.Steps;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.sink.model.WriteModels;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** What a collection's change stream tells, as records. */
final class ChangeEvents {
    private ChangeEvents() {}

    /** All changes that are made meanwhile, as the server's own documents; the last is an insert of {@code _id: "last"}. */
    static List<BsonDocument> during(MongoCollection<RawBsonDocument> source, Runnable changes) {
        List<BsonDocument> events = new ArrayList<>();
        try (MongoCursor<RawBsonDocument> stream = source.aggregate(List.of(BsonDocument.parse("{$changeStream: {}}")))
                .cursor()) {
            changes.run();
            source.insertOne(new RawBsonDocument(Raw.document(Raw.string("_id", "last"))));
            BsonDocument event;
            do {
                event = stream.next();
                events.add(event);
            } while (!event.getDocument("documentKey").get("_id").isString());
        }
        return events;
    }

    /** The header op of the event's record. */
    static String operation(BsonDocument event) {
        return switch (event.getString("operationType").getValue()) {
            case "insert" -> "c";
            case "delete" -> "d";
            default -> "u";
        };
    }

    static Writes.RecordedChange recorded(BsonDocument event, MongoCollection<?> destination, long offset) {
        byte[] key = CanonicalKey.of(BsonBytes.of(event.getDocument("documentKey")));
        byte[] value = change(event).encode();
        SinkRecord record = new SinkRecord("events", 0, null, key, null, value, offset);
        Change change = Change.decode(value);
        boolean isNew = operation(event).equals("c");
        return new Writes.RecordedChange(
                record,
                new Write.DocumentId(destination.getNamespace(), key),
                change,
                change instanceof Change.Update update ? Steps.of(update) : null,
                isNew,
                isNew && !WriteModels.mustBeLiteral(value));
    }

    static Change change(BsonDocument event) {
        return switch (event.getString("operationType").getValue()) {
            case "delete" -> new Change.Delete();
            case "insert", "replace" -> new Change.Document(event.getDocument("fullDocument"));
            default -> update(event.getDocument("updateDescription"));
        };
    }

    private static Change.Update update(BsonDocument described) {
        List<Change.Truncation> truncations = described.getArray("truncatedArrays").stream()
                .map(BsonValue::asDocument)
                .map(cut -> new Change.Truncation(
                        cut.getString("field").getValue(),
                        cut.getNumber("newSize").intValue()))
                .toList();
        List<String> removed = described.getArray("removedFields").stream()
                .map(BsonValue::asString)
                .map(BsonString::getValue)
                .toList();
        return new Change.Update(described.getDocument("updatedFields"), removed, truncations);
    }
}
