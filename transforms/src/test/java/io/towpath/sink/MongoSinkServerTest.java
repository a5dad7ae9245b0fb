package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.ReplaceOptions;
import io.towpath.net.RetryCause;
import io.towpath.record.BsonBytes;
import io.towpath.support.Raw;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;

/** The sink's task on a real replica set: each record once, whoever was there before. */
class MongoSinkServerTest extends DestinationTest {
    @Test
    void startsAtTheBeginningAndGoesOnWhereTheDestinationIs() {
        try (TestTask first = TestTask.opened(collection)) {
            assertEquals(0, first.seek());
            first.put(7, "c {_id: 1, x: 1}", "u {_id: 1, $set: {x: 2}}", "c {_id: 2}", "d {_id: 2}");
        }
        try (TestTask second = TestTask.opened(collection)) {
            assertEquals(11, second.seek());
            assertEquals(TestTask.documents("{_id: 1, x: 2}"), TestTask.stored(collection));
        }
    }

    @Test
    void whatIsAppliedIsSkipped() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, x: 1}", "u {_id: 1, $unset: {x: ''}}");
            sink.put(0, "c {_id: 1, x: 1}", "u {_id: 1, $unset: {x: ''}}", "u {_id: 1, $set: {y: 1}}");
            assertEquals(TestTask.documents("{_id: 1, y: 1}"), TestTask.stored(collection));
        }
    }

    @Test
    void connectIsToldWhatIsApplied() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            Map<?, OffsetAndMetadata> committed = sink.task.preCommit(Map.of(sink.partition, new OffsetAndMetadata(5)));
            assertEquals(Map.of(sink.partition, new OffsetAndMetadata(2)), committed);
        }
    }

    @Test
    void aTaskWhosePartitionWasTakenOverWritesNothingMore() {
        try (TestTask zombie = TestTask.opened(collection);
                TestTask owner = TestTask.opened(collection)) {
            ConnectException fenced = assertThrows(ConnectException.class, () -> zombie.put(0, "c {_id: 1}"));
            assertTrue(
                    fenced.getMessage().startsWith("another task has taken over " + zombie.partition),
                    fenced::getMessage);
            assertEquals(List.of(), TestTask.stored(collection));
            owner.put(0, "c {_id: 2}");
            assertEquals(TestTask.documents("{_id: 2}"), TestTask.stored(collection));
        }
    }

    /** Its worker was frozen, and its consumer joins the group again before the worker learns that the sink is stopped. */
    @Test
    void aTaskWritesNothingWhileACutoverHasStoppedTheSink() {
        try (TestTask sink = TestTask.started(collection)) {
            for (String state : CutoverMarker.STOPPED) {
                mark(state);
                sink.task.open(List.of(sink.partition));
                assertThrows(RetriableException.class, () -> sink.put(0, "c {_id: 1}"), state);
                sink.task.close(List.of(sink.partition));
            }
            assertEquals(List.of(), TestTask.stored(collection));
            mark("source primary");
            sink.task.open(List.of(sink.partition));
            sink.put(0, "c {_id: 1}");
            assertEquals(TestTask.documents("{_id: 1}"), TestTask.stored(collection));
        }
    }

    private static void mark(String state) {
        BsonDocument id = new BsonDocument("_id", new BsonString(TestTask.PIPELINE));
        BsonDocument marker = id.clone().append(CutoverMarker.STATE, new BsonString(state));
        server.client()
                .getDatabase(Destination.DATABASE)
                .getCollection(CutoverMarker.COLLECTION, BsonDocument.class)
                .replaceOne(id, marker, new ReplaceOptions().upsert(true));
    }

    @Test
    void aTaskThatGaveThePartitionUpMayLoseItAgain() {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.RETRY_TIMEOUT, "1")) {
            for (int times = 0; times < 2; times++) {
                try (TestTask owner = TestTask.opened(collection)) {
                    assertEquals(0, owner.seek());
                    assertThrows(RetriableException.class, () -> sink.put(0, "c {_id: 1}"));
                    sink.task.close(List.of(sink.partition));
                }
                sink.task.open(List.of(sink.partition));
            }
            sink.put(0, "c {_id: 1}");
            assertEquals(TestTask.documents("{_id: 1}"), TestTask.stored(collection));
        }
    }

    @Test
    void documentsThatAreThereAlreadyAreReplaced() {
        collection.insertOne(new RawBsonDocument(Raw.document(Raw.int32("_id", 1), Raw.int32("old", 1))));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 0}", "c {_id: 1, x: 1}", "r {_id: 2}");
            assertEquals(TestTask.documents("{_id: 0}", "{_id: 1, x: 1}", "{_id: 2}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void changesOfOneDocumentKeepTheirOrder() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(
                    0,
                    "c {_id: 1}",
                    "d {_id: 1}",
                    "c {_id: 1, z: 1}",
                    "c {_id: 2}",
                    "u {_id: 1, $set: {a: 1}}",
                    "u {_id: 1, $unset: {z: ''}}",
                    "u {_id: 1, $set: {z: 2}}",
                    "d {_id: 2}");
            assertEquals(TestTask.documents("{_id: 1, a: 1, z: 2}"), TestTask.stored(collection));
        }
    }

    @Test
    void whatATaskHasDoneAddsUpAtTheDestination() {
        for (int life = 0; life < 2; life++) {
            try (TestTask sink = TestTask.opened(collection)) {
                sink.put(2L * life, "c {_id: %d}".formatted(life), "u {_id: %d, $set: {'_id.x': 1}}".formatted(life));
            }
        }
        BsonDocument facts = server.tasks().find().first();
        assertEquals(BsonDocument.parse("{pipeline: 'test', task: 0}"), facts.get("_id"));
        assertEquals(
                List.of(4L, 4L, 2L, 2L, 0L),
                Stream.of("batches", "records", "writes", "refused", "retries")
                        .map(name -> facts.getInt64(name).getValue())
                        .toList());
    }

    @Test
    void theNumbersOverJmxAreThoseOfWhatWasWritten() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}", "c {_id: 3}");
            sink.put(
                    3,
                    "u {_id: 1, $set: {x: 1}}",
                    "u {_id: 1, $set: {y: 1}}",
                    "d {_id: 2}",
                    "u {_id: 9, $set: {x: 1}}");
            Map<String, Object> metrics = sink.metrics();
            long ids = BsonBytes.of(BsonDocument.parse("{_id: 1}")).length;
            long set = BsonBytes.of(BsonDocument.parse("{$set: {x: 1}}")).length;
            long both = BsonBytes.of(BsonDocument.parse("{$set: {x: 1, y: 1}}")).length;
            Map<String, Object> counts = Map.of("Records", 7L, "Batches", 2L, "Writes", 6L, "Waves", 2L, "Inserts", 3L);
            counts.forEach((name, count) -> assertEquals(count, metrics.remove(name), name));
            assertEquals(List.of(2L, 1L, 1L), values(metrics, "Updates", "Deletes", "WithoutDocument"));
            assertEquals(List.of(0L, 0L), values(metrics, "Splices", "SpliceMisses"));
            assertEquals(
                    List.of(0L, 0L, 0L),
                    values(metrics, "SchemaChangesWaiting", "SchemaChangesRefused", "SchemaChangesDone"));
            assertEquals(
                    List.of(7.0 / 6, 1L, 0L, 0L, ""),
                    values(metrics, "RecordsPerWrite", "Refused", "Retries", "LastRetryAt", "LastRetryReason"));
            assertEquals(List.of(3 * ids + both + set), values(metrics, "BytesOut"));
            long keys = 7
                    * sink.records(0, "c {_id: 1}").stream()
                            .mapToLong(record -> ((byte[]) record.key()).length)
                            .sum();
            assertEquals(List.of(keys + 3 * ids + 3 * set), values(metrics, "Bytes"));
            long last = (long) metrics.remove("BatchMs");
            long longest = (long) metrics.remove("LongestBatchMs");
            double mean = (double) metrics.remove("MeanBatchMs");
            assertTrue(
                    last > 0 && longest >= last && mean >= last / 2.0 && mean <= longest,
                    "%d %d %f".formatted(last, longest, mean));
            for (RetryCause cause : RetryCause.values()) assertEquals(0L, metrics.remove("Retries_" + cause.label()));
            assertEquals(2L, metrics.get("TransactionsWithin_+Inf"));
            assertTrue((double) metrics.remove("TransactionSeconds") > 0);
            metrics.keySet().removeIf(name -> name.startsWith("TransactionsWithin_"));
            assertEquals(Map.of(), metrics);
        }
        BsonDocument facts = server.tasks().find().first();
        assertEquals(
                List.of(2L, 7L, 6L, 2L, 3L, 2L, 1L, 1L),
                Stream.of("batches", "records", "writes", "waves", "inserts", "updates", "deletes", "withoutDocument")
                        .map(name -> facts.getInt64(name).getValue())
                        .toList());
        assertEquals(
                2,
                facts.getDocument("transactionTimes").values().stream()
                        .mapToLong(count -> count.asInt64().getValue())
                        .sum());
        assertTrue(facts.getInt64("transactionUs").getValue() > 0);
        assertTrue(facts.getInt64("batchMs").getValue() > 0
                && facts.getInt64("bytesOut").getValue() > 0);
        assertTrue(
                facts.getInt64("bytes").getValue() > facts.getInt64("bytesOut").getValue());
    }

    private static List<Object> values(Map<String, Object> metrics, String... names) {
        return Stream.of(names).map(metrics::remove).toList();
    }

    @Test
    void aWriteConcernThatTheDestinationDoesNotKnowStopsTheTask() {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.WRITE_CONCERN, "nowhere")) {
            ConnectException stopped = assertThrows(ConnectException.class, () -> sink.put(0, "c {_id: 1}"));
            assertTrue(stopped.getMessage().contains("nowhere"), stopped::getMessage);
        }
    }

    @Test
    void fullPollsAreOneBatchWithTheFirstThatIsNot() {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.POLL_RECORDS, "2")) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            assertEquals(1, sink.context.timeoutMs, "Connect comes back at once");
            sink.put(2, "c {_id: 3}", "u {_id: 1, $set: {x: 1}}");
            assertEquals(List.of(), TestTask.stored(collection));
            sink.task.put(List.of());
            assertEquals(TestTask.documents("{_id: 1, x: 1}", "{_id: 2}", "{_id: 3}"), TestTask.stored(collection));
            sink.put(4, "c {_id: 4}");
            assertEquals(4, TestTask.stored(collection).size());
        }
        assertEquals(2, server.tasks().find().first().getInt64("batches").getValue());
    }

    @Test
    void whatWasPolledAndNotWrittenIsReadAgain() {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.POLL_RECORDS, "2")) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            sink.task.close(List.of(sink.partition));
            sink.task.put(List.of());
            assertEquals(List.of(), TestTask.stored(collection));
            sink.task.open(List.of(sink.partition));
            assertEquals(0, sink.seek());
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            sink.task.put(List.of());
            assertEquals(TestTask.documents("{_id: 1}", "{_id: 2}"), TestTask.stored(collection));
        }
    }

    @Test
    void batchesAreCutByBytesAndByRecords() {
        for (String[] limit : List.of(
                new String[] {SinkSettings.BATCH_RECORDS, "2"}, new String[] {SinkSettings.BATCH_BYTES, "100"})) {
            fresh();
            try (TestTask sink = TestTask.opened(collection, limit)) {
                sink.put(0, "c {_id: 1}", "c {_id: 2}", "c {_id: 3}", "c {_id: 4}", "c {_id: 5}");
                assertEquals(5, TestTask.stored(collection).size());
            }
            long batches = server.tasks().find().first().getInt64("batches").getValue();
            assertTrue(batches > 1 && batches < 5, limit[0] + ": " + batches);
        }
    }
}
