package io.towpath.source.ddl;

import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.record.ClusterTime;
import java.util.Set;
import java.util.function.Predicate;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * One schema change of a collection, which no record reports.
 *
 * @param kind the server's name of it: drop, rename, create, modify, createIndexes, dropIndexes; or {@value #UNSEEN}
 * @param to the new name of a renamed collection, else empty
 */
record Ddl(ClusterTime time, String kind, String namespace, String to) {
    /** The source's history was lost before the watch read it: there may be any schema changes up to this time. */
    static final String UNSEEN = "unseen";

    static final Set<String> KINDS = Set.of("drop", "rename", "create", "modify", "createIndexes", "dropIndexes");

    static Ddl unseen(ClusterTime upto) {
        return new Ddl(upto, UNSEEN, "", "");
    }

    static Ddl of(ChangeStreamDocument<BsonDocument> event) {
        String to = event.getDestinationNamespace() == null
                ? ""
                : event.getDestinationNamespace().getFullName();
        return new Ddl(
                ClusterTime.of(event.getClusterTime()),
                event.getOperationTypeString(),
                event.getNamespace().getFullName(),
                to);
    }

    /** Whether the event concerns a captured collection. A new collection is relevant only if it has options. */
    static boolean isRelevant(ChangeStreamDocument<BsonDocument> event, Predicate<String> selection) {
        Ddl change = of(event);
        boolean isCaptured = selection.test(change.namespace) || !change.to.isEmpty() && selection.test(change.to);
        if (!isCaptured || !change.kind.equals("create")) return isCaptured;
        BsonDocument options = event.getExtraElements() == null
                ? new BsonDocument()
                : event.getExtraElements().getDocument("operationDescription", new BsonDocument());
        return options.keySet().stream().anyMatch(name -> !name.equals("idIndex"));
    }

    static Ddl parse(BsonDocument stored) {
        return new Ddl(
                ClusterTime.parse(stored.getString("t").getValue()),
                stored.getString("kind").getValue(),
                stored.getString("namespace").getValue(),
                stored.getString("to").getValue());
    }

    BsonDocument stored() {
        return new BsonDocument("t", new BsonString(time.toString()))
                .append("kind", new BsonString(kind))
                .append("namespace", new BsonString(namespace))
                .append("to", new BsonString(to));
    }

    /** The log keeps changes with the same mark once, with the latest time. */
    String mark() {
        return String.join("\0", kind, namespace, to);
    }
}
