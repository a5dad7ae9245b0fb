package io.towpath.source.ddl;

import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.record.ClusterTime;
import java.util.List;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * An event of the stream of schema changes.
 *
 * @param number of the event among those of its time, from 0: a transaction may create several collections
 * @param atMs the source's wall clock
 * @param kind the server's name of it
 * @param namespace of a collection or view; of {@code dropDatabase} the database
 * @param to the new name of a renamed collection, else empty
 * @param uuid of the collection; empty for a view
 * @param description the arguments of the operation
 * @param before what {@code collMod} has changed
 */
record SchemaEvent(
        ClusterTime time,
        int number,
        long atMs,
        String kind,
        String namespace,
        String to,
        Optional<BsonBinary> uuid,
        BsonDocument description,
        BsonDocument before) {
    static final String CREATE = "create";
    static final String CREATE_INDEXES = "createIndexes";
    static final String DROP_INDEXES = "dropIndexes";
    static final String MODIFY = "modify";
    static final String RENAME = "rename";
    static final String DROP = "drop";
    static final String DROP_DATABASE = "dropDatabase";
    static final List<String> KINDS =
            List.of(CREATE, CREATE_INDEXES, DROP_INDEXES, MODIFY, RENAME, DROP, DROP_DATABASE);

    /** The names that the server gives to collections of $out, of convertToCapped, and of a rename to another database. */
    private static final Pattern TEMPORARY =
            Pattern.compile("tmp\\.agg_out\\..+|tmp\\w{5}\\.(?:renameCollection|convertToCapped\\..+)");

    private static final Pattern CONVERTED = Pattern.compile("tmp\\w{5}\\.convertToCapped\\..+");

    static SchemaEvent of(ChangeStreamDocument<BsonDocument> event, int number) {
        BsonDocument extra = event.getExtraElements() == null ? new BsonDocument() : event.getExtraElements();
        ClusterTime time = ClusterTime.of(event.getClusterTime());
        return new SchemaEvent(
                time,
                number,
                event.getWallTime() == null
                        ? time.seconds() * 1_000
                        : event.getWallTime().getValue(),
                event.getOperationTypeString(),
                name(event.getNamespaceDocument()),
                name(event.getDestinationNamespaceDocument()),
                Optional.ofNullable(extra.get("collectionUUID")).map(BsonValue::asBinary),
                extra.getDocument("operationDescription", new BsonDocument()),
                extra.getDocument("stateBeforeChange", new BsonDocument()));
    }

    private static String name(BsonDocument namespace) {
        if (namespace == null) return "";
        String database = namespace.getString("db").getValue();
        return namespace.get("coll") instanceof BsonString collection
                ? database + "." + collection.getValue()
                : database;
    }

    boolean is(String someKind) {
        return kind.equals(someKind);
    }

    /** Whether it is about a selected namespace, or may be. */
    boolean concerns(Predicate<String> selection) {
        return is(DROP_DATABASE) || selection.test(namespace) || !to.isEmpty() && selection.test(to);
    }

    /** The specifications that {@code createIndexes} and {@code dropIndexes} report. */
    List<BsonDocument> indexes() {
        return description.getArray("indexes", new BsonArray()).stream()
                .map(BsonValue::asDocument)
                .toList();
    }

    /** Whether convertToCapped puts its copy in the place of the collection. */
    boolean isConversion() {
        return is(RENAME) && CONVERTED.matcher(collection(namespace)).matches();
    }

    /** Whether the server made the collection for itself, and renames it or removes it at the end. */
    static boolean isTemporary(String namespace) {
        return namespace.startsWith("tmp", namespace.indexOf('.') + 1)
                && TEMPORARY.matcher(collection(namespace)).matches();
    }

    static String database(String namespace) {
        return namespace.substring(0, namespace.indexOf('.'));
    }

    private static String collection(String namespace) {
        return namespace.substring(namespace.indexOf('.') + 1);
    }
}
