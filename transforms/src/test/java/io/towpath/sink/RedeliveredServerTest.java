package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.support.Fuzz;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A task with several partitions, to which Connect hands records over again that were read before it sought: none is jumped. */
@Timeout(600)
class RedeliveredServerTest extends DestinationTest {
    private static final int PARTITIONS = 3;
    private static final int HALF = 12;
    private static final int POLL = 3;
    private static final int SILENCE_MS = 200;

    @BeforeEach
    void canFail() {
        server.requireTestCommands();
    }

    @AfterEach
    void failNoMore() {
        server.fail("off", "");
    }

    /** A task that fails at once when anything fails, and forgets nothing on its own: three polls are a transaction. */
    private TestTask impatient() {
        return TestTask.started(
                collection,
                SinkSettings.RETRY_TIMEOUT,
                "1",
                SinkSettings.SILENCE,
                Integer.toString(SILENCE_MS),
                SinkSettings.POLL_RECORDS,
                Integer.toString(POLL),
                SinkSettings.BATCH_RECORDS,
                "9");
    }

    /** One document a partition, to which each record adds the field of its offset: they tell what was applied, in its order. */
    private static List<SinkRecord> history(TestTask sink, int partition, int from, int to) {
        String[] changes = IntStream.range(from, to)
                .mapToObj(offset -> offset == 0
                        ? "c {_id: %d, f0: 1}".formatted(partition)
                        : "u {_id: %d, $set: {f%d: 1}}".formatted(partition, offset))
                .toArray(String[]::new);
        return TestTask.in(sink.partition(partition), sink.records(from, changes));
    }

    private static List<TopicPartition> partitions(TestTask sink) {
        return IntStream.range(0, PARTITIONS).mapToObj(sink::partition).toList();
    }

    /** With the first half of the log. */
    private static Worker worker(TestTask sink) {
        Worker worker = new Worker(sink, POLL);
        for (TopicPartition partition : partitions(sink))
            worker.append(partition, history(sink, partition.partition(), 0, HALF));
        worker.assign(partitions(sink));
        return worker;
    }

    private static void appendTheRest(TestTask sink, Worker worker) {
        for (TopicPartition partition : partitions(sink))
            worker.append(partition, history(sink, partition.partition(), HALF, 2 * HALF));
    }

    private void assertAllIsApplied(TestTask sink, Worker worker) {
        server.fail("off", "");
        appendTheRest(sink, worker);
        worker.drain();
        List<BsonDocument> expected = IntStream.range(0, PARTITIONS)
                .mapToObj(partition -> document(partition, 2 * HALF))
                .toList();
        assertEquals(expected, TestTask.stored(collection));
    }

    private static BsonDocument document(int partition, int offset) {
        BsonDocument document = new BsonDocument("_id", new BsonInt32(partition));
        for (int field = 0; field < offset; field++) document.append("f" + field, new BsonInt32(1));
        return document;
    }

    /** As a failover does: the destination is where it was before. */
    private void undo(TestTask sink, int partition, int offset) {
        server.run(
                "{killAllSessions: []}"); // a transaction whose commit got lost would hold its documents for a minute
        server.offsets()
                .updateOne(
                        OffsetDocument.filter(TestTask.PIPELINE, sink.partition(partition)),
                        OffsetDocument.set(new BsonDocument("offset", new BsonInt64(offset))));
        BsonDocument id = new BsonDocument("_id", new BsonInt32(partition));
        collection.deleteOne(id);
        if (offset > 0) collection.insertOne(new RawBsonDocument(BsonBytes.of(document(partition, offset))));
    }

    private static void fails(Worker worker, int times) {
        for (int tries = 0; times > 0; tries++) {
            assertTrue(tries < 100, "nothing fails");
            if (!worker.iterate()) times--;
        }
    }

    /** The second silence in a row has the task connect again and forget what waits. */
    private void beSilentTwice(Worker worker, int silenceMs) {
        server.fail(
                "alwaysOn", "failCommands: ['update', 'insert'], blockConnection: true, blockTimeMS: " + 3 * silenceMs);
        fails(worker, 2);
        server.fail("off", "");
    }

    @Test
    void onePartitionIsTakenOverAndTheNextIsNot() {
        try (TestTask sink = impatient()) {
            Worker worker = worker(sink);
            beSilentTwice(worker, SILENCE_MS);
            for (int left = PARTITIONS; left > 1; left--) {
                server.fail("{skip: 1}", "failCommands: ['findAndModify'], errorCode: 13");
                assertFalse(worker.iterate());
            }
            assertAllIsApplied(sink, worker);
        }
    }

    @Test
    void partitionsAreTakenOverWhileOthersCome() {
        try (TestTask sink = impatient()) {
            Worker worker = worker(sink);
            beSilentTwice(worker, SILENCE_MS);
            List<TopicPartition> last = List.of(sink.partition(PARTITIONS - 1));
            worker.revoke(last);
            worker.assign(last);
            assertAllIsApplied(sink, worker);
        }
    }

    @Test
    void aTaskThatConnectsAnewWhilePartitionsComeForgetsWhatWaits() {
        try (TestTask sink = impatient()) {
            Worker worker = worker(sink);
            server.fail("alwaysOn", "failCommands: ['update', 'insert'], errorCode: 13");
            fails(worker, 1);
            server.fail("alwaysOn", "failCommands: ['findAndModify'], blockConnection: true, blockTimeMS: 700");
            List<TopicPartition> last = List.of(sink.partition(PARTITIONS - 1));
            worker.revoke(last);
            for (int silences = 0; silences < 2; silences++) worker.assign(last);
            server.fail("off", "");
            worker.assign(last);
            assertAllIsApplied(sink, worker);
        }
    }

    @Test
    void aPartitionThatAFailoverTookBackIsReadAgainThoughTheNextOnesPositionCannotBeRead() {
        for (int undone = 0; undone < PARTITIONS; undone++) {
            fresh();
            try (TestTask sink = impatient()) {
                Worker worker = worker(sink);
                worker.drain();
                undo(sink, undone, 3);
                appendTheRest(sink, worker);
                server.fail("{skip: 1}", "failCommands: ['find'], errorCode: 13");
                fails(worker, 1);
                server.fail("off", "");
                worker.drain();
                assertEquals(PARTITIONS, TestTask.stored(collection).size());
                for (BsonDocument stored : TestTask.stored(collection))
                    assertEquals(document(stored.getInt32("_id").getValue(), 2 * HALF), stored);
            }
        }
    }

    /** Neither a write nor a restart shows it. */
    @Test
    @Timeout(60)
    void aPartitionThatAFailoverTookBackIsReadAgainThoughNothingComes() throws Exception {
        try (TestTask sink = impatient()) {
            Worker worker = worker(sink);
            worker.drain();
            List<BsonDocument> expected = TestTask.stored(collection);
            undo(sink, 1, 3);
            while (!TestTask.stored(collection).equals(expected)) {
                assertTrue(worker.iterate(), worker::toString);
                Thread.sleep(100);
            }
        }
    }

    @Test
    void aBatchThatTakesTooLongGoesOnInTheNextPut() throws Exception {
        String[] slow = {SinkSettings.BATCH_RECORDS, "2", SinkSettings.POLL_INTERVAL, "1000"};
        try (TestTask sink = TestTask.started(collection, slow)) {
            Worker worker = new Worker(sink, 10);
            worker.append(sink.partition(0), history(sink, 0, 0, 10));
            worker.assign(List.of(sink.partition(0)));
            server.fail("alwaysOn", "failCommands: ['commitTransaction'], blockConnection: true, blockTimeMS: 250");
            int puts = 1;
            for (; !worker.iterate(); puts++) {
                assertEquals(1, sink.context.timeoutMs, "Connect comes back at once");
                assertEquals(List.of(document(0, 2 * puts)), TestTask.stored(collection));
            }
            assertEquals(5, puts, "one transaction each");
            assertEquals(List.of(document(0, 10)), TestTask.stored(collection));
            assertTrue((long) sink.metrics().get("BatchMs") >= 5 * 250, "of all puts");
            assertEquals(0L, sink.metrics().get("Retries"));
        }
    }

    @Test
    void whateverFailsInBetweenEachRecordIsAppliedInItsOrder() {
        Map<String, Integer> outcomes = Fuzz.run("redelivery", 4, Duration.ofMinutes(2), random -> {
            fresh();
            server.tasks()
                    .insertOne(new BsonDocument()); // or making it would wait for transactions whose commit got lost
            try (TestTask sink = impatient()) {
                Worker worker = worker(sink);
                int failed = 0;
                for (int step = 0; step < 30; step++) {
                    if (random.nextInt(3) == 0) disturb(sink, worker, random);
                    else if (!worker.iterate()) failed++;
                }
                worker.assign(partitions(sink).stream()
                        .filter(partition -> !worker.assigned().contains(partition))
                        .toList());
                assertAllIsApplied(sink, worker);
                return failed == 0 ? "quiet" : "failed in between";
            } finally {
                server.fail("off", "");
            }
        });
        assertTrue(outcomes.get("failed in between") > 1, outcomes::toString);
    }

    private void disturb(TestTask sink, Worker worker, Random random) {
        String skip = "{skip: %d}".formatted(random.nextInt(3));
        int partition = random.nextInt(PARTITIONS);
        List<TopicPartition> partitions = List.of(sink.partition(partition));
        switch (random.nextInt(7)) {
            case 0 -> server.fail(skip, "failCommands: ['findAndModify'], errorCode: 13");
            case 1 -> server.fail(skip, "failCommands: ['insert', 'update'], errorCode: 13");
            case 2 -> server.fail(skip, "failCommands: ['find'], errorCode: 13");
            case 3 -> server.fail("{times: 4}", "failCommands: ['commitTransaction'], closeConnection: true");
            case 4 -> server.fail("off", "");
            case 5 -> {
                if (worker.assigned().contains(partitions.get(0))) worker.revoke(partitions);
                else worker.assign(partitions);
            }
            default -> {
                server.fail("off", "");
                BsonDocument stored = server.offsets()
                        .find(OffsetDocument.filter(TestTask.PIPELINE, sink.partition(partition)))
                        .first();
                int applied = stored == null ? 0 : stored.getNumber("offset").intValue();
                if (applied > 0) undo(sink, partition, random.nextInt(applied));
            }
        }
    }
}
