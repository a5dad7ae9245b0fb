package io.towpath.sink;

import static com.mongodb.client.model.Filters.eq;

import com.mongodb.ReadPreference;
import com.mongodb.client.MongoClient;
import java.util.Set;
import org.bson.BsonDocument;

/** What the tool stores of a cutover at the destination: one document per pipeline, as {@code towpath/store/cutover.py} describes. */
final class CutoverMarker {
    static final String COLLECTION = "cutovers";
    static final String STATE = "state";
    /** The destination is primary: the sink stays stopped until a fail back is complete but for its last steps. */
    static final Set<String> STOPPED = Set.of("destination primary", "failing back", "returning the old source");

    private CutoverMarker() {}

    /**
     * Whether a cutover has stopped the sink, so that a task which still runs is a zombie: its worker has lost contact with the others. What
     * it would apply has come from the destination.
     */
    static boolean hasStopped(MongoClient client, String pipeline) {
        BsonDocument marker = client.getDatabase(Destination.DATABASE)
                .getCollection(COLLECTION, BsonDocument.class)
                .withReadPreference(ReadPreference.primary())
                .find(eq("_id", pipeline))
                .first();
        return marker != null && STOPPED.contains(marker.getString(STATE).getValue());
    }
}
