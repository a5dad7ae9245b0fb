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
    String SPLICE = "$splice";

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
     * @param splices arrays that were edited; no other part names one of them, or a place in it
     */
    record Update(BsonDocument set, List<String> unset, List<Truncation> truncations, List<Splice> splices)
            implements Change {
        public Update {
            unset = List.copyOf(unset);
            truncations = List.copyOf(truncations);
            splices = List.copyOf(splices);
        }

        /** Without splices, as the source's server describes it. */
        public Update(BsonDocument set, List<String> unset, List<Truncation> truncations) {
            this(set, unset, truncations, List.of());
        }

        /** What {@code set} names; decodes no value. */
        public List<String> setPaths() {
            List<String> paths = new ArrayList<>();
            BsonElements elements = new BsonElements(BsonBytes.of(set), 0);
            while (elements.next()) paths.add(elements.name());
            return paths;
        }

        public Update withoutSplices() {
            return splices.isEmpty() ? this : new Update(set, unset, truncations);
        }

        public boolean isEmpty() {
            return set.isEmpty() && unset.isEmpty() && truncations.isEmpty() && splices.isEmpty();
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
            byte[] bytes = BsonBytes.of(parts);
            return splices.isEmpty() ? bytes : Splice.append(bytes, splices);
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

    /**
     * The change in a record of a document. Throws {@link ContractException} when the key is not canonical, the value is no change, or the
     * value is the document of another key.
     */
    static Change decode(byte[] key, byte[] value) {
        requireKey(key);
        Change change = decode(value);
        if (change instanceof Document && !CanonicalKey.isKeyOf(key, value))
            throw new ContractException("its document has another _id than its key");
        return change;
    }

    /** Another form of the key would count as another document, and is probably in another partition. */
    private static void requireKey(byte[] key) {
        try {
            WholeBson.require(key);
        } catch (ContractException error) {
            throw new ContractException("its key: " + error.getMessage());
        }
        if (CanonicalKey.isKey(key)) return;
        throw new ContractException(
                BsonElements.atId(key).isEmpty()
                        ? "its key has no _id"
                        : "its key is not {_id: …} alone, in the canonical form");
    }

    /** The change in a record's value. Throws {@link ContractException} when it is neither a document, an update nor null. */
    static Change decode(byte[] value) {
        if (value == null) return new Delete();
        WholeBson.require(value);
        if (!new BsonElements(value, 0).next())
            throw new ContractException("a value without any field is neither a document nor an update");
        boolean isDocument = BsonElements.atId(value).isPresent();
        return isDocument ? new Document(new RawBsonDocument(value)) : update(value);
    }

    private static Update update(byte[] value) {
        BsonDocument set = new BsonDocument();
        List<String> unset = new ArrayList<>();
        List<Truncation> truncations = new ArrayList<>();
        List<Splice> splices = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        BsonElements parts = new BsonElements(value, 0);
        while (parts.next()) {
            String name = parts.name();
            if (!seen.add(name)) throw new ContractException("an update with two parts %s".formatted(name));
            switch (name) {
                case SET -> set = part(value, parts, name);
                case UNSET -> unset.addAll(part(value, parts, name).keySet());
                case TRUNCATE -> part(value, parts, name).forEach((path, size) -> truncations.add(cut(path, size)));
                case SPLICE -> {
                    part(value, parts, name);
                    BsonElements arrays = new BsonElements(value, parts.valueStart());
                    while (arrays.next()) splices.add(Splice.decode(value, arrays));
                }
                case Chunks.NAME -> throw new ContractException(
                        "its value is in chunks, which cannot be put together: the log does not have all of them, or the sink has no address of Kafka (towpath.log.bootstrap.servers)");
                default -> throw new ContractException(
                        "a value with the field '%s' and without an _id is neither a document nor an update"
                                .formatted(name));
            }
        }
        Update update = new Update(set, unset, truncations, splices);
        if (!splices.isEmpty()) requireApart(update);
        return update;
    }

    /** A splice is about the array before the update: no other part may change it, nor another splice. */
    private static void requireApart(Update update) {
        Set<String> others = new HashSet<>(update.setPaths());
        others.addAll(update.unset());
        update.truncations().forEach(cut -> others.add(cut.path()));
        Set<String> spliced = new HashSet<>();
        for (Splice splice : update.splices())
            if (!spliced.add(splice.path()) || others.contains(splice.path())) throw clash(splice.path());
        for (String path : others) if (isWithinAny(path, spliced)) throw clash(path);
        for (String path : spliced) if (isWithinAny(path, others) || isWithinAny(path, spliced)) throw clash(path);
    }

    private static boolean isWithinAny(String path, Set<String> places) {
        for (int dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1))
            if (places.contains(path.substring(0, dot))) return true;
        return false;
    }

    private static ContractException clash(String path) {
        return new ContractException("an update that changes '%s' in two ways, one of them a splice".formatted(path));
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
