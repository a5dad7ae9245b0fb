package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.Updates;
import java.util.List;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.junit.jupiter.api.Test;

/** A sink whose position is older than what the cleaner may have dropped of deletes stops. What idle partitions do needs Kafka. */
class DeleteGuardServerTest extends DestinationTest {
    private static final long LAG = 3_600_000;
    private static final long RETENTION = 7_200_000;
    private static final long NEAR = 30_000; // longer than a test takes

    @Test
    void aPartitionBeginsNowAndItsDocumentTellsWhatIsApplied() {
        try (TestTask sink = guarded()) {
            long began = time("began");
            assertTrue(began > now() - NEAR && began <= now());
            assertEquals(began - LAG, time("at"), "a delete that was first cleaned now is kept for delete.retention");
            sink.appendedMs = began - 1000;
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            assertEquals(began - 1000, time("at"));
            assertEquals(began, time("began"));
        }
    }

    @Test
    void whatIsNotCompactedIsNotWatched() {
        try (TestTask sink = guarded()) {
            sink.put(0, "c {_id: 1}");
        }
        try (TestTask sink = TestTask.opened(collection)) {
            sink.appendedMs = now();
            sink.put(1, "c {_id: 2}");
            assertFalse(
                    document().containsKey("at") || document().containsKey("began"), "else it would be old one day");
        }
    }

    @Test
    void aPositionThatDeletesMayHaveBeenDroppedBehindStopsTheTask() {
        applied(now() - LAG - RETENTION - 1, now() - RETENTION - 1);
        try (TestTask sink = guarded()) {
            assertStopped(sink);
            assertEquals(1, document().getInt64("offset").getValue());
        }
    }

    @Test
    void aPositionThatAllDeletesAreThereBehindGoesOn() {
        applied(now() - LAG - RETENTION + NEAR, 0);
        assertGoesOn();
    }

    @Test
    void aFirstPassOverAnOldLogGoesOnForAsLongAsDeletesAreKept() {
        applied(0, now() - RETENTION + NEAR);
        assertGoesOn();
    }

    @Test
    void positionsFromBeforeTheLogWasCompactedAreTakenAsOfNow() {
        applied(0, 0);
        server.offsets().updateMany(new BsonDocument(), Updates.combine(Updates.unset("at"), Updates.unset("began")));
        long epoch = document().getInt64("epoch").getValue();
        try (TestTask sink = guarded()) {
            assertEquals(1, sink.seek());
            assertEquals(epoch + 1, document().getInt64("epoch").getValue());
            assertTrue(time("began") > now() - NEAR && time("at") > now() - LAG - NEAR);
            sink.put(1, "c {_id: 2}");
        }
    }

    @Test
    void whereNothingWasAppliedNothingCanBeMissed() {
        applied(0, 0);
        server.offsets().updateMany(new BsonDocument(), Updates.set("offset", new BsonInt64(0)));
        collection.drop();
        try (TestTask sink = guarded()) {
            sink.put(0, "c {_id: 1}");
            assertTrue(time("began") > now() - NEAR);
        }
    }

    @Test
    void aBacklogThatGrowsOlderThanDeletesAreKeptStopsARunningTask() throws InterruptedException {
        applied(now() - LAG - RETENTION + NEAR, 0);
        try (TestTask sink = guarded()) {
            sink.appendedMs = now() - LAG - RETENTION + 1000; // and older than what was applied before
            sink.put(1, "c {_id: 2}");
            Thread.sleep(1100);
            assertStopped(sink);
        }
    }

    @Test
    void aDestinationThatWasRestoredIsAsOldAsItsBackup() {
        try (TestTask sink = guarded()) {
            sink.appendedMs = now();
            sink.put(0, "c {_id: 1}");
            BsonDocument backup = document();
            sink.put(1, "c {_id: 2}");
            backup.put("at", new BsonDateTime(0));
            backup.put("began", new BsonDateTime(0));
            server.offsets().replaceOne(new BsonDocument(), backup);
            sink.put(2, "c {_id: 3}");
            assertEquals(1, sink.seek(), "read again from there");
            assertStopped(sink);
            assertEquals(0, time("at"));
        }
    }

    @Test
    void connectIsAskedToComeBackInTime() {
        try (TestTask sink = guarded()) {
            sink.task.put(List.of());
            assertEquals((LAG + RETENTION) / 8, sink.context.timeoutMs);
        }
    }

    /** A document is applied, and so old is what is known of it. */
    private void applied(long atMs, long beganMs) {
        try (TestTask sink = guarded()) {
            sink.put(0, "c {_id: 1}");
        }
        server.offsets()
                .updateMany(
                        new BsonDocument(),
                        Updates.combine(
                                Updates.set("at", new BsonDateTime(atMs)),
                                Updates.set("began", new BsonDateTime(beganMs))));
    }

    private TestTask guarded() {
        return TestTask.opened(
                collection,
                LogSettings.LAG,
                Long.toString(LAG),
                LogSettings.DELETE_RETENTION,
                Long.toString(RETENTION),
                LogSettings.SERVERS,
                "nowhere"); // cannot be asked, which is tried and left
    }

    private void assertGoesOn() {
        try (TestTask sink = guarded()) {
            sink.put(1, "c {_id: 2}");
            assertEquals(TestTask.documents("{_id: 1}", "{_id: 2}"), TestTask.stored(collection));
        }
    }

    private void assertStopped(TestTask sink) {
        List<BsonDocument> before = TestTask.stored(collection);
        ConnectException stopped = assertThrows(ConnectException.class, () -> sink.put(7, "c {_id: 7}"));
        String words = stopped.getMessage();
        assertTrue(words.contains("deletes of " + sink.partition + " may be gone from the log"), words);
        assertTrue(words.contains("restart PIPELINE --accept-missed-deletes") && words.contains("verify"), words);
        assertEquals(before, TestTask.stored(collection));
    }

    private static BsonDocument document() {
        return server.offsets().find().first();
    }

    private static long time(String name) {
        return document().getDateTime(name).getValue();
    }

    private static long now() {
        return System.currentTimeMillis();
    }
}
