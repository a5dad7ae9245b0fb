package io.towpath.debezium;

import com.mongodb.MongoException;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * Searches for the next event that is too large for the server to send. A batch that holds one fails as a whole, so the search takes one
 * event at a time, and requests the failing one again without its contents. It covers every collection, because the server assembles whole
 * events before Debezium's filter sees them.
 *
 * @param known resume tokens of oversized events that earlier searches found
 */
record OversizedSearch(SourceCluster source, Collection<String> known) {
    /** An event that is too large: its resume token and time, and its document, for the worker's log. */
    record Match(String token, ClusterTime time, String namespace, String id) {
        ResumePoint passed() {
            return new ResumePoint(time, Optional.of(new BsonDocument("_data", new BsonString(token))));
        }

        @Override
        public String toString() {
            return "%s %s at %s".formatted(namespace, id, time);
        }
    }

    /**
     * The first oversized event after a point; empty when there is none until now, or none is found by {@code endNs}. Throws
     * {@link MongoException}.
     */
    Optional<Match> after(ResumePoint point, long endNs) {
        ClusterTime now = source.now();
        ResumePoint passed = point;
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor =
                stream(point, CursorPipeline.stages(known)).batchSize(1).cursor()) {
            while (!passed.time().isAfter(now) && System.nanoTime() < endNs) {
                ChangeStreamDocument<BsonDocument> event = cursor.tryNext();
                BsonDocument token = event == null ? cursor.getResumeToken() : event.getResumeToken();
                if (token != null) passed = new ResumePoint(EventTime.ofToken(token), Optional.of(token));
            }
            return Optional.empty();
        } catch (MongoException error) {
            if (!ServerError.BSONObjectTooLarge.is(error)) throw error;
            return Optional.of(first(passed));
        }
    }

    private Match first(ResumePoint passed) {
        BsonDocument names = BsonDocument.parse("{$project: {_id: 1, ns: 1, clusterTime: 1, documentKey: 1}}");
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor =
                stream(passed, List.of(names)).batchSize(1).cursor()) {
            ChangeStreamDocument<BsonDocument> event = cursor.next();
            String id =
                    event.getDocumentKey() == null ? "" : event.getDocumentKey().toJson();
            return new Match(
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
