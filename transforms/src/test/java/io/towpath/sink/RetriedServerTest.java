package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.ClientSession;
import io.towpath.support.Raw;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.apache.kafka.connect.errors.RetriableException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What passes is tried again, and each record is still applied once. Needs a mongod with {@code enableTestCommands=1}. */
class RetriedServerTest extends DestinationTest {
    private static final String[] NOT_REPEATABLE = {
        "c {_id: 1, q: 1}", "u {_id: 1, $unset: {q: ''}}", "u {_id: 1, $set: {q: 1}}", "u {_id: 1, $set: {p: 1}}"
    };

    @BeforeEach
    void canFail() {
        server.requireTestCommands();
    }

    @AfterEach
    void failNoMore() {
        server.fail("off", "");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "failCommands: ['update'], errorCode: 10107",
                "failCommands: ['update'], closeConnection: true",
                "failCommands: ['insert'], errorCode: 13",
                "failCommands: ['insert'], errorCode: 12501",
                "failCommands: ['insert'], errorCode: 388",
                "failCommands: ['commitTransaction'], errorCode: 388",
                "failCommands: ['insert'], errorCode: 112, errorLabels: ['TransientTransactionError']",
                "failCommands: ['commitTransaction'], errorCode: 251, errorLabels: ['TransientTransactionError']",
                "failCommands: ['commitTransaction'], closeConnection: true",
                "failCommands: ['commitTransaction'], writeConcernError: {code: 64, errmsg: 'waiting timed out'}",
            })
    void whatPassesIsTriedAgain(String failure) {
        try (TestTask sink = TestTask.opened(collection)) {
            for (int times : List.of(1, 2)) {
                server.fail("{times: %d}".formatted(times), failure);
                int from = times * 10;
                assertTimeout(Duration.ofSeconds(30), () -> sink.put(from, NOT_REPEATABLE));
                assertEquals(TestTask.documents("{_id: 1, q: 1, p: 1}"), TestTask.stored(collection));
                sink.put(from + 4, "d {_id: 1}");
            }
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void aTransactionTooLargeForTheServersCacheIsTriedAgainInSmallerOnes() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            server.fail("{times: 3}", "failCommands: ['commitTransaction'], errorCode: 388");
            sink.put(
                    0, IntStream.range(0, 64).mapToObj("c {_id: %d}"::formatted).toArray(String[]::new));
            assertEquals(64, collection.countDocuments());
            assertTrue((long) sink.metrics().get("Batches") > 5);
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void eachRecordIsAppliedOnceWhileThePrimaryStepsDownAgainAndAgain() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            AtomicBoolean hasMet = new AtomicBoolean();
            Thread unrest = new Thread(() -> {
                server.stepDown();
                for (int times = 0; times < 1 || times < 5 && !hasMet.get(); times++) {
                    LockSupport.parkNanos(Duration.ofMillis(500).toNanos()); // or a write may meet all of them
                    server.stepDown();
                }
            });
            unrest.start();
            int documents = 0;
            while (unrest.isAlive()) {
                String[] changes = NOT_REPEATABLE.clone();
                for (int i = 0; i < changes.length; i++)
                    changes[i] = changes[i].replace("_id: 1,", "_id: " + documents + ",");
                sink.put(4L * documents++, changes);
                hasMet.set((long) sink.metrics().get("Retries") > 0);
            }
            unrest.join();
            List<BsonDocument> stored = TestTask.stored(collection);
            assertEquals(documents, stored.size());
            for (int i = 0; i < documents; i++)
                assertEquals(TestTask.documents("{_id: %d, q: 1, p: 1}".formatted(i)), List.of(stored.get(i)));
            assertTrue((long) sink.metrics().get("Retries") > 0);
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    @Tag("nightly")
    void aServerThatSaysNothingIsGivenUpSoon() {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.SILENCE, "500")) {
            sink.put(0, "c {_id: 1}");
            server.fail("{times: 1}", "failCommands: ['update'], blockConnection: true, blockTimeMS: 5000");
            assertTimeout(Duration.ofSeconds(4), () -> sink.put(1, "u {_id: 1, $set: {p: 1}}"));
            assertEquals(TestTask.documents("{_id: 1, p: 1}"), TestTask.stored(collection));
        }
    }

    @Test
    @Tag("nightly")
    void aServerThatIsOnlySlowIsWaitedForLongerAndEachRecordIsAppliedOnce() {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.SILENCE, "300")) {
            server.fail("alwaysOn", "failCommands: ['update', 'insert'], blockConnection: true, blockTimeMS: 1000");
            int tries = 0;
            while (TestTask.stored(collection).isEmpty() && tries++ < 5) {
                try {
                    sink.put(0, NOT_REPEATABLE);
                } catch (RetriableException again) { // as Connect does: the same records once more
                    assertTrue(again.getMessage().startsWith("the destination was silent for too long"));
                    continue;
                }
                if (TestTask.stored(collection).isEmpty()) assertEquals(0, sink.seek());
            }
            server.fail("off", "");
            assertEquals(TestTask.documents("{_id: 1, q: 1, p: 1}"), TestTask.stored(collection));
            sink.put(4, "d {_id: 1}");
            assertEquals(List.of(), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void aTaskThatConnectsAnewCountsEverythingOnce() throws Exception {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.SILENCE, "300")) {
            sink.put(0, NOT_REPEATABLE);
            server.fail("alwaysOn", "failCommands: ['update'], blockConnection: true, blockTimeMS: 1000");
            assertThrows(RetriableException.class, () -> sink.put(4, "u {_id: 1, $set: {r: 1}}"));
            server.fail("off", "");
            sink.put(4, "u {_id: 1, $set: {r: 1}}");
            sink.put(4, "u {_id: 1, $set: {r: 1}}");
            assertEquals(5L, sink.metrics().get("Records"));
        }
        assertEquals(5, server.tasks().find().first().getInt64("records").getValue());
    }

    @Test
    @Tag("nightly")
    void numbersWhoseWriteIsNotAnsweredInTimeCountOnceAndDelayNothing() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}");
            server.fail(
                    "alwaysOn",
                    "namespace: 'towpath.tasks', failCommands: ['update'], blockConnection: true, blockTimeMS: 3000");
            for (int i = 1; i < 4; i++) {
                Thread.sleep(1_100); // the numbers are due again
                int offset = i;
                assertTimeout(Duration.ofSeconds(1), () -> sink.put(offset, "c {_id: %d}".formatted(offset + 1)));
            }
            Thread.sleep(3_000); // the server has done what it was asked
            server.fail("off", "");
        }
        assertEquals(4, server.tasks().find().first().getInt64("records").getValue());
    }

    @Test
    void whatGoesOnForTooLongIsLeftToConnect() throws Exception {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.RETRY_TIMEOUT, "500")) {
            server.fail("alwaysOn", "failCommands: ['insert'], errorCode: 13");
            RetriableException later = assertThrows(RetriableException.class, () -> sink.put(0, NOT_REPEATABLE));
            assertTrue(later.getMessage().startsWith("cannot write to the destination for "), later::getMessage);
            assertEquals(5_000, sink.context.timeoutMs);
            assertTrue((long) sink.metrics().get("Retries") > 1);
            assertEquals(sink.metrics().get("Retries"), sink.metrics().get("Retries_permission"));

            server.fail("off", "");
            sink.put(0, NOT_REPEATABLE);
            assertEquals(TestTask.documents("{_id: 1, q: 1, p: 1}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void whatConnectHandsOverAgainFollowsThePollsBeforeIt() {
        try (TestTask sink =
                TestTask.opened(collection, SinkSettings.RETRY_TIMEOUT, "500", SinkSettings.POLL_RECORDS, "2")) {
            server.fail("alwaysOn", "failCommands: ['insert'], errorCode: 13");
            sink.put(0, NOT_REPEATABLE[0], NOT_REPEATABLE[1]);
            for (int times = 0; times < 2; times++)
                assertThrows(RetriableException.class, () -> sink.put(2, NOT_REPEATABLE[2]));
            server.fail("off", "");
            sink.put(2, NOT_REPEATABLE[2]);
            assertEquals(TestTask.documents("{_id: 1, q: 1}"), TestTask.stored(collection));
            sink.put(3, NOT_REPEATABLE[3]);
            assertEquals(TestTask.documents("{_id: 1, q: 1, p: 1}"), TestTask.stored(collection));
        }
    }

    @Test
    void aDestinationThatCannotBeReachedWhenPartitionsComeIsTriedAgainByPut() {
        server.fail("alwaysOn", "failCommands: ['findAndModify'], errorCode: 13");
        try (TestTask sink = TestTask.opened(collection, SinkSettings.RETRY_TIMEOUT, "500")) {
            assertThrows(RetriableException.class, () -> sink.put(3, "c {_id: 3}"));
            server.fail("off", "");
            sink.put(3, "c {_id: 3}");
            assertEquals(List.of(), TestTask.stored(collection)); // it may not be the first record
            assertEquals(0, sink.seek());
            sink.put(0, "c {_id: 0}");
            assertEquals(TestTask.documents("{_id: 0}"), TestTask.stored(collection));
        }
    }

    @Test
    void whatAFailoverUndidIsReadAgain() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}", "c {_id: 3}");
            server.offsets().updateMany(new BsonDocument(), BsonDocument.parse("{$set: {offset: {$numberLong: '1'}}}"));
            collection.deleteMany(BsonDocument.parse("{_id: {$gt: 1}}"));
            sink.put(3, "c {_id: 4}");
            assertEquals(1, sink.seek());
            assertEquals(TestTask.documents("{_id: 1}"), TestTask.stored(collection));
            sink.put(1, "c {_id: 2}", "c {_id: 3}", "c {_id: 4}");
            assertEquals(4, TestTask.stored(collection).size());
        }
    }

    @Test
    void aKilledTasksTransactionDoesNotHoldTheNextOneUp() {
        collection.insertOne(new RawBsonDocument(Raw.document(Raw.int32("_id", 1))));
        try (TestTask before = TestTask.opened(collection);
                ClientSession killed = server.session()) {
            assertEquals(0, before.seek());
            BsonDocument session = killed.getServerSession().getIdentifier();
            server.offsets()
                    .updateMany(new BsonDocument(), new BsonDocument("$set", new BsonDocument("session", session)));
            killed.startTransaction();
            collection.updateOne(killed, new BsonDocument(), BsonDocument.parse("{$set: {half: 1}}"));
            server.offsets().updateMany(killed, new BsonDocument(), BsonDocument.parse("{$set: {offset: 1}}"));
            assertTimeout(Duration.ofSeconds(10), () -> {
                try (TestTask next = TestTask.opened(collection)) {
                    assertEquals(0, next.seek());
                    next.put(0, "u {_id: 1, $set: {whole: 1}}");
                }
            });
            assertEquals(TestTask.documents("{_id: 1, whole: 1}"), TestTask.stored(collection));
        }
    }
}
