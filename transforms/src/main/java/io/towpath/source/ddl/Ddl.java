package io.towpath.source;

import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.record.ClusterTime;
import java.util.Set;
import java.util.function.Predicate;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * One thing done to a collection as such, which no record tells of.
 *
 * @param kind the server's name of it: drop, rename, create, modify, createIndexes, dropIndexes; or {@value #UNSEEN}
 * @param to the new name of a renamed collection, else empty
 */
record Ddl(ClusterTime time, String kind, String namespace, String to) {
    /** The source's history was lost before it was looked at: anything may have been done up to this time. */
    static final String UNSEEN = "unseen";

    static final Set<String> KINDS = Set.of("drop", "rename", "create", "modify", "createIndexes", "dropIndexes");

    static Ddl unseen(ClusterTime upto) {
        return new Ddl(upto, UNSEEN, "", "");
    }

    static Ddl of(ChangeStreamDocument<BsonDocument> event) {
        String to = event.getDestinationNamespace() == null
                ? ""
                : event.getDestinationNamespace().getFullName();
        String kind = event.getOperationTypeString();
        return new Ddl(
                ClusterTime.of(event.getClusterTime()),
                kind,
                event.getNamespace().getFullName(),
                to);
    }

    /** Whether it is about a collection that is taken in. A collection that is made is news only with options of its own. */
    static boolean isNews(ChangeStreamDocument<BsonDocument> event, Predicate<String> selection) {
        Ddl found = of(event);
        boolean isOurs = selection.test(found.namespace) || !found.to.isEmpty() && selection.test(found.to);
        if (!isOurs || !found.kind.equals("create")) return isOurs;
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

    /** What has the same mark is told once, as of the last time. */
    String mark() {
        return String.join("\0", kind, namespace, to);
    }
}
