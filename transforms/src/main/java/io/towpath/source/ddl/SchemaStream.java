package io.towpath.source.ddl;

import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;

/**
 * The schema changes of the whole deployment, which Debezium's stream does not report. Read only on demand, and then without waiting: what
 * Debezium's stream has brought is in the oplog.
 */
final class SchemaStream implements AutoCloseable {
    /** How long one call may take. */
    private static final long MOST_NS = Duration.ofSeconds(1).toNanos();
    /** So many reads follow at once on one another; a member that lags behind that of Debezium's stream needs more. */
    private static final int EAGER = 20;

    private static final long PAUSE_MS = 5;

    private final SourceCluster source;
    private final Predicate<SchemaEvent> isRelevant;
    private final Queue<SchemaEvent> events = new ArrayDeque<>();
    private MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor;
    /** Every event up to then is read. */
    private ClusterTime read;
    /** Of the last event that the cursor brought. */
    private ClusterTime lastTime;

    private int lastNumber;
    /** Of the last event that was taken: a new cursor brings some again. */
    private ClusterTime takenTime;

    private int takenNumber;

    /** Of the events after {@code position}. */
    SchemaStream(SourceCluster source, ClusterTime position, Predicate<SchemaEvent> isRelevant) {
        this.source = source;
        this.isRelevant = isRelevant;
        read = position;
        lastTime = position;
        takenTime = position;
        takenNumber = Integer.MAX_VALUE;
    }

    /** The relevant events that are read, in their order. */
    Queue<SchemaEvent> events() {
        return events;
    }

    boolean hasRenamesSince(ClusterTime time) {
        return events.stream()
                .anyMatch(event -> event.is(SchemaEvent.RENAME) && event.time().isAfter(time));
    }

    /** Whether a name that was in use stands for another collection now, or for none. */
    boolean hasRemovals() {
        return events.stream().anyMatch(event -> event.is(SchemaEvent.DROP) || event.is(SchemaEvent.RENAME));
    }

    /** Returns whether every event up to this time is read: otherwise, call it again. Throws the driver's exceptions. */
    boolean readUpTo(ClusterTime time) throws InterruptedException {
        long end = System.nanoTime() + MOST_NS;
        for (int empty = 0; time.isAfter(read); ) {
            if (System.nanoTime() > end) return false;
            if (cursor == null) cursor = open();
            ChangeStreamDocument<BsonDocument> event = cursor.tryNext();
            if (event != null) {
                take(event);
                continue;
            }
            // an empty batch: the server has returned every event up to the token's time, also those that share it
            if (cursor.getResumeToken() != null) passed(EventTime.ofToken(cursor.getResumeToken()));
            if (++empty > EAGER) Thread.sleep(PAUSE_MS);
        }
        return true;
    }

    private MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> open() {
        BsonArray kinds =
                new BsonArray(SchemaEvent.KINDS.stream().map(BsonString::new).toList());
        BsonDocument filter = new BsonDocument("operationType", new BsonDocument("$in", kinds));
        lastTime = read;
        lastNumber = -1;
        return source.changes(List.of(new BsonDocument("$match", filter)))
                .showExpandedEvents(true)
                .startAtOperationTime(read.timestamp())
                .maxAwaitTime(1, TimeUnit.MILLISECONDS)
                .cursor();
    }

    private void take(ChangeStreamDocument<BsonDocument> document) {
        ClusterTime time = ClusterTime.of(document.getClusterTime());
        lastNumber = time.equals(lastTime) ? lastNumber + 1 : 0;
        lastTime = time;
        passed(time.previous());
        boolean isKnown = takenTime.isAfter(time) || takenTime.equals(time) && lastNumber <= takenNumber;
        if (isKnown) return;
        takenTime = time;
        takenNumber = lastNumber;
        SchemaEvent event = SchemaEvent.of(document, lastNumber);
        if (isRelevant.test(event)) events.add(event);
    }

    private void passed(ClusterTime time) {
        if (time.isAfter(read)) read = time;
    }

    /** Every event up to then is read. */
    ClusterTime position() {
        return read;
    }

    /** After an error: the next read opens another cursor. */
    void reset() {
        if (cursor != null) cursor.close();
        cursor = null;
    }

    @Override
    public void close() {
        reset();
    }
}
