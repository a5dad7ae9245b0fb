package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.towpath.record.ClusterTime;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
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

    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("queued");

    @AfterEach
    void close() {
        server.close();
    }

    @Test
    void documentsLargerThanTheQueueComeInTheirOrder() throws InterruptedException {
        Map<String, String> configuration = Sources.configuration();
        configuration.put("collection.include.list", collection.getNamespace().getFullName());
        configuration.put("capture.mode", "change_streams");
        configuration.put("poll.interval.ms", "10"); // a poll does not see that the queue is full of bytes
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
}
