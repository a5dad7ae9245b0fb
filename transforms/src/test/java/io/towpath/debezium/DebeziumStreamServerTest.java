package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.WriteConcern;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.towpath.record.ClusterTime;
import io.towpath.support.Raw;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DebeziumStreamServerTest {
    private static final int DOCUMENTS = 200;
    private static final int DOCUMENT_BYTES = 50_000;
    private static final int MB = 1 << 20;

    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("queued");

    @AfterEach
    void close() {
        server.close();
    }

    @Test
    @Tag("nightly")
    void documentsLargerThanTheQueueComeInTheirOrder() throws InterruptedException {
        Map<String, String> configuration = configuration();
        configuration.put(QueuedBytes.LIMIT, Integer.toString(DOCUMENT_BYTES / 2));
        List<String> operations = new ArrayList<>();
        try (SourceCluster source = Sources.connected(configuration)) {
            ClusterTime start = source.now().next();
            for (int id = 0; id < DOCUMENTS; id++) {
                collection.insertOne(
                        RawBsonDocument.parse("{_id: %d, text: '%s'}".formatted(id, "x".repeat(DOCUMENT_BYTES))));
                collection.updateOne(Filters.eq("_id", id), Updates.set("text", "y".repeat(DOCUMENT_BYTES)));
            }
            DebeziumToRecord toRecord = new DebeziumToRecord();
            try (DebeziumStream stream =
                    new DebeziumStream(new SourceContext(configuration), configuration, source, start)) {
                while (operations.size() < 2 * DOCUMENTS) {
                    List<SourceRecord> records =
                            Optional.ofNullable(stream.poll()).orElse(List.of());
                    records.forEach(
                            record -> toRecord.event(record).ifPresent(event -> operations.add(event.operation())));
                }
            }
        }
        List<String> expected = Collections.nCopies(DOCUMENTS, List.of("c", "u")).stream()
                .flatMap(List::stream)
                .toList();
        assertEquals(expected, operations);
    }

    /** Debezium reads up to 2,048 events ahead, whatever their size. */
    @Test
    @Tag("nightly")
    void whatIsReadAheadIsBoundedByItsBytes() throws InterruptedException {
        Map<String, String> configuration = configuration();
        configuration.put(QueuedBytes.LIMIT, Integer.toString(16 * MB));
        try (SourceCluster source = Sources.connected(configuration)) {
            ClusterTime start = source.now().next();
            collection.insertOne(new RawBsonDocument(document(0, "first")));
            for (int id = 1; id < DOCUMENTS; id++)
                collection.insertOne(new RawBsonDocument(document(id, "x".repeat(MB))));
            try (DebeziumStream stream =
                    new DebeziumStream(new SourceContext(configuration), configuration, source, start)) {
                while (Optional.ofNullable(stream.poll()).orElse(List.of()).isEmpty()) Thread.onSpinWait();
                long before = usedBytes();
                Thread.sleep(3_000); // nothing polls
                long held = usedBytes() - before;
                assertTrue(held < 80L * MB, () -> "%,d bytes are held of %d MB".formatted(held, DOCUMENTS));
            }
        }
    }

    private static byte[] document(int id, String text) {
        return Raw.document(Raw.int32("_id", id), Raw.string("text", text));
    }

    private static long usedBytes() {
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    @Test
    void aStreamThatAnErrorEndsBeginsAgainSoon() throws InterruptedException {
        server.requireTestCommands();
        Map<String, String> configuration = configuration();
        try (SourceCluster source = Sources.connected(configuration);
                DebeziumStream stream = new DebeziumStream(
                        new SourceContext(configuration),
                        configuration,
                        source,
                        source.now().next())) {
            collection.insertOne(new RawBsonDocument(document(0, "before")));
            awaitChange(stream);
            server.fail("{times: 1}", "failCommands: ['getMore'], errorCode: 2");
            long began = System.nanoTime();
            awaitChange(stream); // again, as nothing has stored the offset behind it
            Duration took = Duration.ofNanos(System.nanoTime() - began);
            assertTrue(took.toMillis() < 8_000, took::toString); // Debezium itself waits 10 s
        }
    }

    /** Such as one that was away, and was restored in the meantime. */
    @Test
    void aStreamDoesNotBeginWhereTheSourceHasAnotherHistory() {
        Map<String, String> configuration = configuration();
        SourceContext context = new SourceContext(configuration);
        try (SourceCluster source = Sources.connected(configuration)) {
            int seconds = (int) source.now().seconds();
            collection.withWriteConcern(WriteConcern.MAJORITY).insertOne(new RawBsonDocument(document(0, "later")));
            Map<String, Object> noEntry = Map.of("sec", seconds, "ord", 0);
            context.store(List.of(new SourceRecord(DebeziumStream.partition(configuration), noEntry, "p", null, null)));
            ClusterTime start = new ClusterTime(seconds - 60, 1);
            try (DebeziumStream stream = new DebeziumStream(context, configuration, source, start)) {
                ConnectException refused = assertThrows(ConnectException.class, stream::poll);
                assertTrue(refused.getMessage().startsWith("TWP-OTHER-HISTORY: "), refused::getMessage);
            }
        }
    }

    private static void awaitChange(DebeziumStream stream) throws InterruptedException {
        DebeziumToRecord toRecord = new DebeziumToRecord();
        while (Optional.ofNullable(stream.poll()).orElse(List.of()).stream()
                .noneMatch(record -> toRecord.event(record).isPresent())) Thread.onSpinWait();
    }

    private Map<String, String> configuration() {
        Map<String, String> configuration = Sources.configuration();
        configuration.put("collection.include.list", collection.getNamespace().getFullName());
        configuration.put("capture.mode", "change_streams");
        configuration.put("poll.interval.ms", "10"); // a poll does not see that the queue is full of bytes
        return configuration;
    }
}
