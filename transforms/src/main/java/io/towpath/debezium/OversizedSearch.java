package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.record.ClusterTime;
import io.towpath.transform.ResumeToken;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * Looks for the next event that is too large for the server to send. A batch that holds one fails as a whole, so events are taken one
 * at a time; the one that fails is asked for once more without its contents. Those of every collection are, as the server puts
 * together whole events before Debezium's filter sees them.
 */
final class OversizedSearch {
    private static final int TOO_LARGE = 10334;

    private final SourceCluster source;
    private final Collection<String> known;

    /** @param known resume tokens of events that were found before */
    OversizedSearch(SourceCluster source, Collection<String> known) {
        this.source = source;
        this.known = known;
    }

    /** An event that is too large: its resume token and time, and what it is about, for people. */
    record Found(String token, ClusterTime time, String namespace, String id) {
        ResumePoint passed() {
            return new ResumePoint(time, Optional.of(new BsonDocument("_data", new BsonString(token))));
        }

        @Override
        public String toString() {
            return "%s %s at %s".formatted(namespace, id, time);
        }
    }

    /**
     * The first one behind a point; empty when there is none up to now, or none was found by {@code endNs}. Throws
     * {@link MongoException}.
     */
    Optional<Found> after(ResumePoint point, long endNs) {
        ClusterTime now = source.now();
        ResumePoint passed = point;
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor =
                stream(point, ChangeCarrier.stages(known)).batchSize(1).cursor()) {
            while (!passed.time().isAfter(now) && System.nanoTime() < endNs) {
                ChangeStreamDocument<BsonDocument> event = cursor.tryNext();
                BsonDocument token = event == null ? cursor.getResumeToken() : event.getResumeToken();
                if (token != null) passed = new ResumePoint(ResumeToken.clusterTime(token), Optional.of(token));
            }
            return Optional.empty();
        } catch (MongoException error) {
            if (error.getCode() != TOO_LARGE) throw error;
            return Optional.of(first(passed));
        }
    }

    private Found first(ResumePoint passed) {
        BsonDocument names = BsonDocument.parse("{$project: {_id: 1, ns: 1, clusterTime: 1, documentKey: 1}}");
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor =
                stream(passed, List.of(names)).batchSize(1).cursor()) {
            ChangeStreamDocument<BsonDocument> event = cursor.next();
            String id =
                    event.getDocumentKey() == null ? "" : event.getDocumentKey().toJson();
            return new Found(
                    event.getResumeToken().getString("_data").getValue(),
                    ClusterTime.of(event.getClusterTime()),
                    event.getNamespace() == null ? "" : event.getNamespace().getFullName(),
                    id.length() > 200 ? id.substring(0, 200) + "…" : id);
        }
    }

    private ChangeStreamIterable<BsonDocument> stream(ResumePoint point, List<BsonDocument> stages) {
        return point.from(source.changes(stages));
    }
}
