package io.towpath.record;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.bson.BSONException;
import org.bson.BsonArray;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.RawBsonDocument;

/**
 * A schema change in the log. The same record is in every partition of the topics that it concerns: a barrier, behind which each partition
 * waits until the change is made.
 *
 * @param id identifies it in its pipeline
 * @param namespace the source's name of the collection or view
 * @param to the source's new name of a renamed collection; empty for other kinds
 * @param isView whether it is about a view
 * @param options of a new collection or view, as {@code create} takes them, or what {@code collMod} changes; as at the source
 * @param indexes specifications of indexes, without that of {@code _id}; as at the source
 * @param isSnapshot whether it describes what existed before schema changes were captured, and is no change itself
 * @param partitions of each topic that it concerns
 */
public record SchemaChange(
        String id,
        Kind kind,
        String namespace,
        String to,
        boolean isView,
        BsonDocument options,
        List<BsonDocument> indexes,
        boolean isSnapshot,
        Map<String, Integer> partitions) {
    /** The header's {@code op} of such a record. */
    public static final String OPERATION = "ddl";

    private static final String KEY = "ddl";
    /** In a key: the name behind the document's length and the type. */
    private static final byte[] NAME = (KEY + '\0').getBytes(US_ASCII);

    private static final int BEFORE_NAME = Integer.BYTES + 1;

    /** What is done. */
    public enum Kind {
        /** A collection or view with these options and indexes. */
        CREATE("create"),
        CREATE_INDEXES("createIndexes"),
        /** Of the indexes only the name counts. */
        DROP_INDEXES("dropIndexes"),
        MODIFY("collMod"),
        /** The new name replaces a collection of that name; options and indexes are the renamed collection's. Its documents follow as rows. */
        RENAME("rename"),
        DROP("drop"),
        /** The collection is another one now, with these options and indexes. Its documents follow as rows. */
        REPLACE("replace"),
        /** The documents that follow a rename or a replacement have all been emitted. */
        COMPLETE("complete");

        private final String text;

        Kind(String text) {
            this.text = text;
        }

        /** As the record has it. */
        public String text() {
            return text;
        }
    }

    public SchemaChange {
        indexes = List.copyOf(indexes);
        partitions = Map.copyOf(partitions);
    }

    /** The record's key, which the cleaner never merges with another one. */
    public byte[] key() {
        return BsonBytes.of(new BsonDocument(KEY, new BsonString(id)));
    }

    /** The record's value; parts that are empty are left out. */
    public byte[] value() {
        BsonDocument value = new BsonDocument("ddl", new BsonString(kind.text)).append("ns", new BsonString(namespace));
        if (!to.isEmpty()) value.append("to", new BsonString(to));
        if (isView) value.append("view", BsonBoolean.TRUE);
        if (!options.isEmpty()) value.append("options", options);
        if (!indexes.isEmpty()) value.append("indexes", new BsonArray(indexes));
        if (isSnapshot) value.append("snapshot", BsonBoolean.TRUE);
        BsonDocument topics = new BsonDocument();
        new TreeMap<>(partitions).forEach((topic, count) -> topics.append(topic, new BsonInt32(count)));
        return BsonBytes.of(value.append("topics", topics));
    }

    /** Whether a record's key is that of a schema change. It is asked of every record, so it looks at a few bytes only. */
    public static boolean isKey(byte[] key) {
        int end = BEFORE_NAME + NAME.length;
        return key.length > end + Integer.BYTES
                && key[BEFORE_NAME - 1] == BsonElements.STRING
                && Arrays.equals(key, BEFORE_NAME, end, NAME, 0, NAME.length);
    }

    /** Whether the change of one id is known to come behind that of another in the partitions that have both. */
    public static boolean isLater(String id, String other) {
        String[] parts = id.split("/", 3);
        String[] others = other.split("/", 3);
        if (parts.length < 3 || others.length < 3) return false;
        try {
            int order = ClusterTime.parse(parts[0]).compareTo(ClusterTime.parse(others[0]));
            return order != 0 ? order > 0 : Long.parseLong(parts[1]) > Long.parseLong(others[1]);
        } catch (ContractException | NumberFormatException error) {
            return false;
        }
    }

    /** The topic of a namespace of the source, if it is one of those that the change concerns. */
    public Optional<String> topic(String namespace) {
        return partitions.keySet().stream()
                .filter(topic -> topic.endsWith("." + namespace)
                        && topic.indexOf('.') == topic.length() - namespace.length() - 1)
                .findFirst();
    }

    /** Throws {@link ContractException} for anything but a schema change. */
    public static SchemaChange decode(byte[] key, byte[] value) {
        if (!isKey(key) || value == null) throw new ContractException("it is not {ddl: …} with a value");
        WholeBson.require(key);
        WholeBson.require(value);
        String id = new RawBsonDocument(key).getString(KEY).getValue();
        try {
            BsonDocument fields = new RawBsonDocument(value);
            Map<String, Integer> partitions = new TreeMap<>();
            fields.getDocument("topics")
                    .forEach((topic, count) ->
                            partitions.put(topic, count.asInt32().getValue()));
            List<BsonDocument> indexes = new ArrayList<>();
            fields.getArray("indexes", new BsonArray()).forEach(index -> indexes.add(index.asDocument()));
            SchemaChange change = new SchemaChange(
                    id,
                    kind(fields.getString("ddl").getValue()),
                    fields.getString("ns").getValue(),
                    fields.getString("to", new BsonString("")).getValue(),
                    fields.containsKey("view"),
                    fields.getDocument("options", new BsonDocument()),
                    indexes,
                    fields.containsKey("snapshot"),
                    partitions);
            if (change.topic(change.namespace).isEmpty() || change.kind == Kind.RENAME && change.to.isEmpty())
                throw new ContractException("schema change %s does not say what it concerns".formatted(id));
            return change;
        } catch (BSONException error) {
            throw new ContractException("schema change %s breaks the contract: %s".formatted(id, error.getMessage()));
        }
    }

    private static Kind kind(String text) {
        return Arrays.stream(Kind.values())
                .filter(kind -> kind.text.equals(text))
                .findFirst()
                .orElseThrow(() -> new ContractException("'%s' is no kind of schema change".formatted(text)));
    }
}
