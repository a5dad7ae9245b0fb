package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import io.towpath.fold.Steps;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import io.towpath.sink.model.WriteModels;
import io.towpath.support.Raw;
import io.towpath.support.Splices;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** What a collection's change stream tells, as records; with splices in place of arrays that are known from before. */
public final class ChangeEvents {
    /** Paths that no splice has: with an index, or a name that no operator takes. */
    private static final String ODD = "(.*\\.)?(\\d*|\\$[^.]*)(\\..*)?";

    private final Random random;
    /** Of each document, by its canonical key, path → the elements of the array there, as far as they are known. */
    private final Map<ByteBuffer, Map<String, List<byte[]>>> arrays = new HashMap<>();

    ChangeEvents(Random random) {
        this.random = random;
    }

    /** All changes that are made during this, as the server's own documents; the last is an insert of {@code _id: "last"}. */
    public static List<BsonDocument> during(MongoCollection<RawBsonDocument> source, Runnable changes) {
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

    /** The events have to come in their order. */
    Writes.RecordedChange recorded(BsonDocument event, MongoCollection<?> destination, long offset) {
        byte[] key = CanonicalKey.of(BsonBytes.of(event.getDocument("documentKey")));
        byte[] value = spliced(event).encode();
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

    /** As {@link #change}, with splices. */
    Change spliced(BsonDocument event) {
        ByteBuffer key = ByteBuffer.wrap(CanonicalKey.of(BsonBytes.of(event.getDocument("documentKey"))));
        Map<String, List<byte[]>> known = arrays.computeIfAbsent(key, unused -> new HashMap<>());
        Change change = change(event);
        if (!(change instanceof Change.Update update)) {
            known.clear();
            if (change instanceof Change.Document document) learnBelow(known, "", BsonBytes.of(document.document()), 0);
            return change;
        }
        update.unset().forEach(place -> forget(known, place));
        for (Change.Truncation cut : update.truncations()) {
            List<byte[]> array = known.get(cut.path());
            if (array == null) forget(known, cut.path());
            else array.subList(cut.newSize(), array.size()).clear();
        }
        List<Splice> splices = new ArrayList<>();
        List<byte[]> set = new ArrayList<>();
        byte[] bytes = BsonBytes.of(update.set());
        BsonElements elements = new BsonElements(bytes, 0);
        while (elements.next()) {
            String path = name(bytes, elements);
            List<byte[]> before = known.get(path);
            if (!isElement(known, path, bytes, elements)) {
                forget(known, path);
                learn(known, path, bytes, elements);
            }
            if (before != null && known.containsKey(path) && random.nextInt(8) > 0)
                splices.add(Splices.between(random, path, before, known.get(path)));
            else set.add(Arrays.copyOfRange(bytes, elements.nameStart() - 1, elements.valueEnd()));
        }
        BsonDocument rest = new RawBsonDocument(Raw.document(set.toArray(byte[][]::new)));
        return new Change.Update(rest, update.unset(), update.truncations(), splices);
    }

    private static String name(byte[] bytes, BsonElements element) {
        return new String(bytes, element.nameStart(), element.valueStart() - 1 - element.nameStart(), UTF_8);
    }

    private static void learn(Map<String, List<byte[]>> known, String path, byte[] bytes, BsonElements element) {
        if (path.matches(ODD)) return;
        if (element.type() == BsonElements.ARRAY) known.put(path, Splices.elements(bytes, element.valueStart()));
        if (element.type() == BsonElements.DOCUMENT) learnBelow(known, path + ".", bytes, element.valueStart());
    }

    private static void learnBelow(Map<String, List<byte[]>> known, String prefix, byte[] bytes, int start) {
        BsonElements elements = new BsonElements(bytes, start);
        while (elements.next()) {
            String name = name(bytes, elements);
            if (name.indexOf('.') < 0) learn(known, prefix + name, bytes, elements);
        }
    }

    /** Whether it is an element of a known array, or a new one at its end. */
    private static boolean isElement(Map<String, List<byte[]>> known, String path, byte[] bytes, BsonElements element) {
        int dot = path.lastIndexOf('.');
        List<byte[]> array = dot < 0 ? null : known.get(path.substring(0, dot));
        String name = path.substring(dot + 1);
        if (array == null || !name.matches("0|[1-9]\\d{0,3}") || Integer.parseInt(name) > array.size()) return false;
        byte[] value = Arrays.copyOfRange(bytes, element.valueStart(), element.valueEnd());
        int index = Integer.parseInt(name);
        array.subList(index, Math.min(index + 1, array.size())).clear();
        array.add(index, Raw.join(new byte[] {element.type()}, value));
        return true;
    }

    /** The arrays there, around it and within it are unknown from now on. */
    private static void forget(Map<String, List<byte[]>> known, String place) {
        known.keySet().removeIf(path -> (path + ".").startsWith(place + ".") || (place + ".").startsWith(path + "."));
    }

    public static Change change(BsonDocument event) {
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
