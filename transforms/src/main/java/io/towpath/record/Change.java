package io.towpath.record;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** What one record says about its document. The value alone distinguishes the kinds: a document has an {@code _id}, an update never has. */
public sealed interface Change {
    String SET = "$set";
    String UNSET = "$unset";
    String TRUNCATE = "$truncate";

    /** The document is now this one. */
    record Document(BsonDocument document) implements Change {
        @Override
        public byte[] encode() {
            return BsonBytes.of(document);
        }
    }

    /**
     * These paths changed, and nothing else. Never creates a document.
     *
     * @param set path to value, in the order of the change event
     * @param unset paths that are gone
     * @param truncations arrays that were cut, before {@code set} writes into them
     */
    record Update(BsonDocument set, List<String> unset, List<Truncation> truncations) implements Change {
        public Update {
            unset = List.copyOf(unset);
            truncations = List.copyOf(truncations);
        }

        public boolean isEmpty() {
            return set.isEmpty() && unset.isEmpty() && truncations.isEmpty();
        }

        @Override
        public byte[] encode() {
            BsonDocument unsetPart = new BsonDocument();
            unset.forEach(path -> unsetPart.append(path, new BsonString("")));
            BsonDocument truncatePart = new BsonDocument();
            truncations.forEach(cut -> truncatePart.append(cut.path(), new BsonInt32(cut.newSize())));
            BsonDocument parts =
                    new BsonDocument(SET, set).append(UNSET, unsetPart).append(TRUNCATE, truncatePart);
            parts.values().removeIf(part -> part.asDocument().isEmpty());
            return BsonBytes.of(parts);
        }
    }

    /** The newest length of one array: everything from there on is gone. */
    record Truncation(String path, int newSize) {
        public Truncation {
            if (newSize < 0) {
                throw new ContractException(
                        "array '%s' cut to %d elements: a length cannot be negative".formatted(path, newSize));
            }
        }
    }

    /** The document is gone. */
    record Delete() implements Change {
        @Override
        public byte[] encode() {
            return null;
        }
    }

    /** The record's value; null for a delete. */
    byte[] encode();

    /** The change in a record's value. Throws {@link ContractException} when it is neither a document, an update nor null. */
    static Change decode(byte[] value) {
        if (value == null) return new Delete();
        WholeBson.require(value);
        boolean isEmpty = true;
        BsonElements elements = new BsonElements(value, 0);
        boolean isDocument = false;
        while (elements.next()) {
            isEmpty = false;
            isDocument |= elements.nameIs(BsonElements.ID);
        }
        if (isEmpty) throw new ContractException("a value without any field is neither a document nor an update");
        return isDocument ? new Document(new RawBsonDocument(value)) : update(value);
    }

    private static Update update(byte[] value) {
        BsonDocument set = new BsonDocument();
        List<String> unset = new ArrayList<>();
        List<Truncation> truncations = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        BsonElements parts = new BsonElements(value, 0);
        while (parts.next()) {
            String name = parts.name();
            if (!seen.add(name)) throw new ContractException("an update with two parts %s".formatted(name));
            switch (name) {
                case SET -> set = part(value, parts, name);
                case UNSET -> unset.addAll(part(value, parts, name).keySet());
                case TRUNCATE -> part(value, parts, name).forEach((path, size) -> truncations.add(cut(path, size)));
                default -> throw new ContractException(
                        "a value with the field '%s' and without an _id is neither a document nor an update"
                                .formatted(name));
            }
        }
        return new Update(set, unset, truncations);
    }

    private static RawBsonDocument part(byte[] value, BsonElements parts, String name) {
        int length = parts.valueEnd() - parts.valueStart();
        if (parts.type() != BsonElements.DOCUMENT || !new BsonElements(value, parts.valueStart()).next())
            throw new ContractException("%s of an update must name at least one path".formatted(name));
        BsonElements paths = new BsonElements(value, parts.valueStart());
        while (paths.next()) requireShallow(value, paths, name);
        return new RawBsonDocument(value, parts.valueStart(), length);
    }

    private static void requireShallow(byte[] value, BsonElements path, String part) {
        int depth = 1;
        for (int i = path.nameStart(); i < path.valueStart(); i++) if (value[i] == '.') depth++;
        if (depth > WholeBson.DEEPEST)
            throw new ContractException("%s of an update names a place %d levels deep, and no document has more than %d"
                    .formatted(part, depth, WholeBson.DEEPEST));
    }

    private static Truncation cut(String path, BsonValue size) {
        if (!size.isInt32())
            throw new ContractException("array '%s' cut to %s: the length must be an int32".formatted(path, size));
        return new Truncation(path, size.asInt32().getValue());
    }
}
