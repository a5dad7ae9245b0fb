package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.UpdateOptions;
import java.time.Duration;
import java.util.LinkedHashMap;
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
        Map<String, Long> now = counters();
        BsonDocument increments = new BsonDocument();
        now.forEach((name, value) -> increments.append(name, new BsonInt64(value - written.getOrDefault(name, 0L))));
        BsonDocument update = new BsonDocument("$inc", increments);
        long retryAt = metrics.getLastRetryAt();
        if (now.equals(written) && retryAt == lastRetryAt) return;
        if (retryAt != lastRetryAt) {
            BsonDocument retry = new BsonDocument("at", new BsonDateTime(retryAt))
                    .append("reason", new BsonString(metrics.getLastRetryReason()));
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

    private Map<String, Long> counters() {
        Map<String, Long> counters = new LinkedHashMap<>();
        counters.put("batches", metrics.getBatches());
        counters.put("records", metrics.getRecords());
        counters.put("writes", metrics.getWrites());
        counters.put("waves", metrics.getWaves());
        counters.put("inserts", metrics.getInserts());
        counters.put("updates", metrics.getUpdates());
        counters.put("deletes", metrics.getDeletes());
        counters.put("withoutDocument", metrics.getWithoutDocument());
        counters.put("bytes", metrics.getBytes());
        counters.put("bytesOut", metrics.getBytesOut());
        counters.put("batchMs", metrics.totalBatchMs());
        counters.put("refused", metrics.getRefused());
        counters.put("retries", metrics.getRetries());
        return counters;
    }
}
