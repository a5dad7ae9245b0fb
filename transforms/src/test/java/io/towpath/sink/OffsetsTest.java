package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoClientSettings;
import com.mongodb.MongoTimeoutException;
import com.mongodb.ReadConcern;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.Updates;
import io.towpath.support.Context;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.conversions.Bson;
import org.junit.jupiter.api.Test;

/** What a sink stores of its positions while the destination does not always respond. */
class OffsetsTest {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final BsonDocument STORED =
            BsonDocument.parse("{epoch: {$numberLong: '1'}, offset: 10, began: {$date: 0}, at: {$date: 0}}");

    private final Context context = new Context();
    private boolean responds = true;
    /** The values of `clear` that were written. */
    private final List<BsonDocument> written = new ArrayList<>();
    /** What the documents have to match in which they were written. */
    private final List<BsonDocument> matched = new ArrayList<>();

    /** What the primary has of the partition. */
    private BsonDocument local = STORED;
    /** What a majority has of it. */
    private BsonDocument durable = STORED;

    private long nowNs = TimeUnit.DAYS.toNanos(1);
    private final Offsets offsets = new Offsets(
            "test",
            client(),
            new DeleteGuard(LogSettings.of(Map.of())),
            new LogGuard(log(), LogSettings.of(Map.of()).lagMs(), () -> nowNs),
            () -> nowNs);

    /** Else a later start finds markers that retention has deleted, and takes them for records. */
    @Test
    void whereTheLogHasNoRecordsIsStoredAgainAfterAFailedWrite() {
        offsets.open(PARTITION, new BsonDocument());
        offsets.requireLog(List.of(PARTITION));
        written.clear();
        nowNs += TimeUnit.SECONDS.toNanos(6);
        responds = false;
        offsets.guard(context);
        offsets.guard(context);
        assertEquals(List.of(), written);
        assertEquals(11, offsets.position(PARTITION).clear());

        responds = true;
        offsets.guard(context);
        offsets.guard(context);
        BsonDocument clear = new BsonDocument("$set", new BsonDocument("clear", new BsonInt64(11)));
        assertEquals(List.of(clear), written, "once is enough");
    }

    /** With a write concern of 1 others may lag for long. Then the destination has everything. */
    @Test
    void aPositionIsTakenBackOnceThePrimaryLacksItAndNeverOnceAMajorityHasIt() {
        offsets.open(PARTITION, new BsonDocument());
        durable = at(1, 5);
        assertEquals(Set.of(), takenBack());
        assertEquals(10, offsets.next(PARTITION).getAsLong());

        responds = false;
        local = at(1, 7);
        assertEquals(Set.of(), takenBack());
        responds = true;
        assertEquals(Set.of(), offsets.takenBack(), "it is not asked at each poll");
        assertEquals(Set.of(PARTITION), takenBack());
        assertEquals(7, offsets.next(PARTITION).getAsLong());

        local = at(2, 3);
        assertEquals(Set.of(), takenBack(), "another task has taken it over");
        local = at(1, 7);
        durable = at(1, 7);
        assertEquals(Set.of(), takenBack());
        durable = null;
        assertEquals(Set.of(), takenBack(), "nothing is asked any more");
    }

    /** A destination that was emptied or restored is no second connector. */
    @Test
    void aTaskThatIsNoOwnerSaysWhy() {
        String two = "TWP-SHARED-POSITION: another task has taken over t-0, so this one writes nothing more of it: "
                + "towpath.pipeline 'test' is used by two connectors";
        assertEquals(two, lasting(at(2, 10)));
        assertEquals(two, lasting(at(2, 0)), "wherever it is");
        String restored = lasting(at(0, 10));
        assertTrue(restored.startsWith("the destination has an older position of t-0 than this task's"), restored);
        String emptied = lasting(null);
        assertTrue(emptied.startsWith("TWP-POSITION-LOST: the destination no longer has the position of t-0"), emptied);
    }

    /** What a task fails with once the destination has had this for as long as it retries. */
    private String lasting(BsonDocument stored) {
        local = STORED;
        offsets.open(PARTITION, new BsonDocument());
        local = stored;
        Map<String, String> given = Map.of(
                "connection.uri",
                "mongodb://127.0.0.1:1",
                "topics",
                "t",
                "towpath.pipeline",
                "test",
                "towpath.retry.timeout.ms",
                "0");
        SinkSettings settings = SinkSettings.of(given);
        SinkMetrics metrics = new SinkMetrics("displaced" + System.nanoTime(), "test", 0);
        Displacement displacement =
                new Displacement(settings, context, offsets, metrics, new Retry(settings.retryTimeout(), context));
        assertThrows(RetriableException.class, () -> displacement.drifts(Set.of(PARTITION)));
        ConnectException late = assertThrows(ConnectException.class, () -> displacement.drifts(Set.of(PARTITION)));
        return late.getMessage();
    }

    /** Else deletes that a failover took back would count as applied, and the log may lose them unnoticed. */
    @Test
    void upToWhenAnIdlePartitionIsAppliedIsStoredAtItsPositionOnly() {
        LogSettings log = new LogSettings(Optional.empty(), Map.of(), 8_000, 8_000, true, new Properties());
        DeleteGuard guard = new DeleteGuard(log, unread -> Map.of(PARTITION, OptionalLong.empty()), () -> 9_000);
        Offsets compacted = new Offsets("test", client(), guard, new LogGuard(null, -1), () -> nowNs);
        compacted.open(PARTITION, new BsonDocument());
        compacted.guard(context);
        assertEquals(List.of(bson(Updates.set(DeleteGuard.AT, new BsonDateTime(9_000)))), written);
        OffsetDocument position = compacted.position(PARTITION);
        assertEquals(List.of(bson(new OffsetStore("test", client()).at(PARTITION, position))), matched);
    }

    private Set<TopicPartition> takenBack() {
        nowNs += TimeUnit.SECONDS.toNanos(6);
        return Set.copyOf(offsets.takenBack());
    }

    private static BsonDocument at(long epoch, long offset) {
        return new BsonDocument("epoch", new BsonInt64(epoch)).append("offset", new BsonInt64(offset));
    }

    /** A log that ends with the marker of a transaction. */
    private static LogBounds.Source log() {
        return new LogBounds.Source() {
            @Override
            public CompletableFuture<Map<TopicPartition, LogBounds>> bounds(
                    Collection<TopicPartition> partitions, boolean ends) {
                return CompletableFuture.completedFuture(Map.of(PARTITION, new LogBounds("id", 0, 11, 11, 1)));
            }

            @Override
            public Map<TopicPartition, OptionalLong> firstTimes(Map<TopicPartition, Long> positions) {
                throw new UnsupportedOperationException();
            }

            @Override
            public Map<TopicPartition, OptionalLong> timesAt(Map<TopicPartition, Long> offsets) {
                throw new UnsupportedOperationException();
            }

            @Override
            public void close() {}
        };
    }

    private MongoClient client() {
        return fake(
                MongoClient.class,
                (client, ofClient, unused) ->
                        fake(MongoDatabase.class, (database, ofDatabase, name) -> collection(() -> local)));
    }

    private MongoCollection<?> collection(Supplier<BsonDocument> stored) {
        return fake(MongoCollection.class, (collection, method, given) -> switch (method.getName()) {
            case "withReadConcern" -> collection(given[0] == ReadConcern.MAJORITY ? () -> durable : () -> local);
            case "find" -> found(stored.get());
            case "findOneAndUpdate" -> STORED;
            case "bulkWrite" -> {
                if (!responds) throw new MongoTimeoutException("no primary");
                for (Object each : (List<?>) given[0]) {
                    UpdateOneModel<?> update = (UpdateOneModel<?>) each;
                    written.add(bson(update.getUpdate()));
                    matched.add(bson(update.getFilter()));
                }
                yield null;
            }
            default -> collection; // with…
        });
    }

    private FindIterable<?> found(BsonDocument stored) {
        if (!responds) throw new MongoTimeoutException("no primary");
        Iterator<BsonDocument> documents =
                Stream.ofNullable(stored).map(OffsetsTest::identified).iterator();
        MongoCursor<?> cursor = fake(
                MongoCursor.class,
                (all, method, none) -> method.getName().equals("hasNext") ? documents.hasNext() : documents.next());
        return fake(
                FindIterable.class,
                (all, method, none) -> method.getName().equals("iterator")
                        ? cursor
                        : Optional.ofNullable(stored)
                                .map(OffsetsTest::identified)
                                .orElse(null));
    }

    private static BsonDocument identified(BsonDocument stored) {
        return stored.clone()
                .append("_id", OffsetDocument.filter("test", PARTITION).get("_id"));
    }

    private static BsonDocument bson(Bson update) {
        return update.toBsonDocument(BsonDocument.class, MongoClientSettings.getDefaultCodecRegistry());
    }

    private static <T> T fake(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
