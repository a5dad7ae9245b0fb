package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.UpdateOptions;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;

/**
 * What a task has done, stored at the destination for {@code towpath status}: about once a second, by a separate thread, outside the
 * transactions, if possible. The numbers are whole sums and never fall, so a write whose answer is lost counts nothing twice.
 */
final class TaskFacts {
    static final String COLLECTION = "tasks";
    private static final long EVERY_NS = Duration.ofSeconds(1).toNanos();
    private static final int PATIENCE_S = 2;

    private final BsonDocument id;
    private final SinkMetrics metrics;
    private final ExecutorService writer = Executors.newSingleThreadExecutor(TaskFacts::thread);
    private volatile MongoCollection<BsonDocument> collection;
    private Future<?> writing = CompletableFuture.completedFuture(null);
    private long next = System.nanoTime();
    /** What the tasks before this one have done, as it was stored; null until it is read. Of the writer's thread, as what follows. */
    private Map<String, Long> before;

    private Map<String, Long> written = Map.of();
    private long lastRetryAt;

    TaskFacts(SinkSettings settings, SinkMetrics metrics) {
        this.id = new BsonDocument(
                "_id",
                new BsonDocument("pipeline", new BsonString(settings.pipeline()))
                        .append("task", new BsonInt32(settings.task())));
        this.metrics = metrics;
    }

    private static Thread thread(Runnable work) {
        Thread thread = new Thread(work, "towpath-task-facts");
        thread.setDaemon(true);
        return thread;
    }

    /** Uses this client from now on. */
    void writeTo(MongoClient client) {
        collection = client.getDatabase(Destination.DATABASE)
                .getCollection(COLLECTION, BsonDocument.class)
                .withReadPreference(ReadPreference.primary())
                .withWriteConcern(WriteConcern.W1)
                .withTimeout(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** Has what is new since the last time written, at most about once a second. Returns at once. */
    void write() {
        if (System.nanoTime() - next < 0 || !writing.isDone()) return;
        next = System.nanoTime() + EVERY_NS;
        writing = writer.submit(this::store);
    }

    /**
     * Ends the thread.
     *
     * @param isConnected whether the destination was there, so that what is new is written before
     */
    void close(boolean isConnected) {
        if (isConnected && !writer.isShutdown()) writer.submit(this::store); // a task may be stopped twice
        writer.shutdown();
        try {
            writer.awaitTermination(2 * PATIENCE_S, TimeUnit.SECONDS); // less than the 5 s that Connect grants a stop
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void store() {
        Map<String, Long> now = metrics.counters();
        long retryAt = metrics.lastRetryAt();
        if (now.equals(written) && retryAt == lastRetryAt) return;
        try {
            if (before == null) before = stored();
            collection.updateOne(id, update(now, retryAt), new UpdateOptions().upsert(true));
            written = now;
            lastRetryAt = retryAt;
        } catch (MongoException | IllegalStateException error) {
            // written the next time; a client that was just closed throws the second
        }
    }

    private Map<String, Long> stored() {
        Map<String, Long> numbers = new HashMap<>();
        BsonDocument stored = collection.find(id).first();
        if (stored != null) addNumbers("", stored, numbers);
        return numbers;
    }

    private static void addNumbers(String prefix, BsonDocument document, Map<String, Long> numbers) {
        document.forEach((name, value) -> {
            if (value.isNumber()) numbers.put(prefix + name, value.asNumber().longValue());
            else if (value.isDocument()) addNumbers(prefix + name + '.', value.asDocument(), numbers);
        });
    }

    /** {@code $max}: a task that Connect has lost sight of may write its sums, which are older, later. */
    private BsonDocument update(Map<String, Long> now, long retryAt) {
        BsonDocument sums = new BsonDocument();
        now.forEach((name, value) -> sums.append(name, new BsonInt64(before.getOrDefault(name, 0L) + value)));
        BsonDocument update = new BsonDocument("$max", sums);
        if (retryAt == lastRetryAt) return update;
        BsonDocument retry = new BsonDocument("at", new BsonDateTime(retryAt))
                .append("reason", new BsonString(metrics.lastRetryReason()));
        return update.append("$set", new BsonDocument("lastRetry", retry));
    }
}
