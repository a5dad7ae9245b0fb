package io.towpath.debezium;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** The document in which {@link CursorPipeline} brings the key of an update or a delete, and what an update changes. */
final class UpdateCarrier {
    private static final byte[] KEY = ascii(CursorPipeline.KEY);
    private static final byte[] DESCRIPTION = ascii(CursorPipeline.DESCRIPTION);
    private static final byte[] OVERSIZED = ascii(CursorPipeline.OVERSIZED);
    private static final byte[] UPDATED = ascii("updatedFields");
    private static final byte[] PATHS = ascii("disambiguatedPaths");
    private static final byte[] SET = ascii(Change.SET);
    /** Bytes of a document or an array without elements. */
    private static final int EMPTY = 5;

    /** Where a document is within the bytes. */
    private record Part(int start, int end) {}

    private final byte[] bytes;
    private Part key;
    private Part description;
    private boolean isOversized;

    private UpdateCarrier(byte[] bytes) {
        this.bytes = bytes;
    }

    /** Empty when there is no key. */
    static Optional<UpdateCarrier> of(byte[] bytes) {
        UpdateCarrier carrier = new UpdateCarrier(bytes);
        BsonElements parts = new BsonElements(bytes, 0);
        while (parts.next()) {
            if (parts.nameIs(OVERSIZED)) carrier.isOversized = true;
            if (parts.type() != BsonElements.DOCUMENT) continue;
            if (parts.nameIs(KEY)) carrier.key = new Part(parts.valueStart(), parts.valueEnd());
            else if (parts.nameIs(DESCRIPTION)) carrier.description = new Part(parts.valueStart(), parts.valueEnd());
        }
        return carrier.key == null ? Optional.empty() : Optional.of(carrier);
    }

    boolean isOversized() {
        return isOversized;
    }

    /** Whether a path in it has a field whose own name holds a dot. Servers before 8.2 do not tell. */
    boolean hasDottedName() {
        if (description == null) return false;
        BsonElements parts = new BsonElements(bytes, description.start);
        while (parts.next()) {
            if (!parts.nameIs(PATHS) || parts.type() != BsonElements.DOCUMENT) continue;
            int length = parts.valueEnd() - parts.valueStart();
            return length > EMPTY
                    && new RawBsonDocument(bytes, parts.valueStart(), length)
                            .values().stream()
                                    .flatMap(path -> path.asArray().stream())
                                    .anyMatch(name -> name.isString()
                                            && name.asString().getValue().contains("."));
        }
        return false;
    }

    byte[] key() {
        return Arrays.copyOfRange(bytes, key.start, key.end);
    }

    /** As {@link DebeziumEvent#update}. */
    Optional<byte[]> update() {
        if (description == null) throw new DataException("an update without %s".formatted(CursorPipeline.DESCRIPTION));
        Optional<Part> set = onlySet();
        if (set.isPresent())
            return Optional.of(BsonBytes.ofField(BsonElements.DOCUMENT, SET, bytes, set.get().start, set.get().end));
        Change.Update update =
                parsed(new RawBsonDocument(bytes, description.start, description.end - description.start));
        return update.isEmpty() ? Optional.empty() : Optional.of(update.encode());
    }

    /** What the most frequent update sets, which is passed on as it is; empty for every other one. */
    private Optional<Part> onlySet() {
        Part set = null;
        BsonElements parts = new BsonElements(bytes, description.start);
        while (parts.next()) {
            boolean isEmpty = parts.valueEnd() - parts.valueStart() == EMPTY;
            if (parts.nameIs(UPDATED) && parts.type() == BsonElements.DOCUMENT && !isEmpty && set == null)
                set = new Part(parts.valueStart(), parts.valueEnd());
            else if (!parts.nameIs(PATHS) && (parts.type() != BsonElements.ARRAY || !isEmpty)) return Optional.empty();
        }
        return Optional.ofNullable(set);
    }

    private static Change.Update parsed(BsonDocument description) {
        List<String> unset = description.getArray("removedFields", new BsonArray()).stream()
                .map(name -> name.asString().getValue())
                .toList();
        List<Change.Truncation> truncations = description.getArray("truncatedArrays", new BsonArray()).stream()
                .map(BsonValue::asDocument)
                .map(cut -> new Change.Truncation(
                        cut.getString("field").getValue(),
                        cut.getInt32("newSize").getValue()))
                .toList();
        return new Change.Update(description.getDocument("updatedFields", new BsonDocument()), unset, truncations);
    }

    private static byte[] ascii(String name) {
        return name.getBytes(US_ASCII);
    }
}
