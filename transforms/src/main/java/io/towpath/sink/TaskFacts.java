package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.UpdateOptions;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;

/** What a task has done, stored at the destination for {@code towpath status}: about once a second, outside the transactions, if possible. */
final class TaskFacts {
    static final String COLLECTION = "tasks";
    private static final long EVERY_NS = Duration.ofSeconds(1).toNanos();
    private static final int PATIENCE_S = 2;

    private final BsonDocument id;
    private final SinkMetrics metrics;
    private MongoCollection<BsonDocument> collection;
    private Map<String, Long> written = Map.of();
    private long lastRetryAt;
    private long next = System.nanoTime();

    TaskFacts(SinkSettings settings, SinkMetrics metrics) {
        this.id = new BsonDocument(
                "_id",
                new BsonDocument("pipeline", new BsonString(settings.pipeline()))
                        .append("task", new BsonInt32(settings.task())));
        this.metrics = metrics;
    }

    /** Uses this client from now on. What was written through the previous one is not added again. */
    void writeTo(MongoClient client) {
        collection = client.getDatabase(Destination.DATABASE)
                .getCollection(COLLECTION, BsonDocument.class)
                .withTimeout(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** Adds what is new since the last time, at most about once a second. */
    void write() {
        if (System.nanoTime() - next >= 0) writeNow();
    }

    void writeNow() {
        next = System.nanoTime() + EVERY_NS;
        Map<String, Long> now = metrics.counters();
        BsonDocument increments = new BsonDocument();
        now.forEach((name, value) -> increments.append(name, new BsonInt64(value - written.getOrDefault(name, 0L))));
        BsonDocument update = new BsonDocument("$inc", increments);
        long retryAt = metrics.lastRetryAt();
        if (now.equals(written) && retryAt == lastRetryAt) return;
        if (retryAt != lastRetryAt) {
            BsonDocument retry = new BsonDocument("at", new BsonDateTime(retryAt))
                    .append("reason", new BsonString(metrics.lastRetryReason()));
            update.append("$set", new BsonDocument("lastRetry", retry));
        }
        try {
            collection.updateOne(id, update, new UpdateOptions().upsert(true));
            written = now;
            lastRetryAt = retryAt;
        } catch (MongoException error) {
            // written the next time
        }
    }
}
