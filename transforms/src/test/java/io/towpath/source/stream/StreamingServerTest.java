package io.towpath.source.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.RereadSettings;
import io.towpath.source.reread.Rereads;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Debezium's own stream of a real server, behind a copy. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StreamingServerTest {
    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("streaming");
    private final String namespace = collection.getNamespace().getFullName();
    private final Map<String, String> configuration = Sources.configuration();
    private SourceCluster source;

    @BeforeEach
    void connect() {
        configuration.put("collection.include.list", namespace);
        configuration.put("towpath.whole.documents", "true");
        configuration.put("capture.mode", "change_streams_update_full");
        configuration.put("max.batch.size", "1"); // so that each poll brings one record
        configuration.put("max.queue.size", "2");
        source = Sources.connected(configuration);
    }

    @AfterEach
    void close() {
        source.close();
        server.close();
    }

    @Test
    void theTimesOfRowsAreKeptUntilAnOffsetBehindThemIsStored() throws InterruptedException {
        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
        Ledger ledger = copied(source.now());
        // of an update whose document is gone when it is looked up nothing is emitted
        collection.insertOne(RawBsonDocument.parse("{_id: 2}"));
        ClusterTime start = source.now().next();
        collection.updateOne(Filters.eq("_id", 2), Updates.set("a", 1));
        collection.deleteOne(Filters.eq("_id", 2));

        List<SourceRecord> emitted = firstOf(ledger, start);

        assertEquals("d", operation(emitted.get(0)), emitted::toString);
        assertTrue(emitted.size() > 1, "the times are forgotten in the transaction of the delete");
        assertTrue(ledger.rows().copies().isEmpty());
    }

    private Ledger copied(ClusterTime time) {
        Ledger ledger = new Ledger(new Partitions("p"), new SourceContext(configuration));
        ledger.begin("", time, List.of(namespace));
        ledger.plan(namespace, new RangePlan(List.of(), 1, 1, 1));
        ledger.advance(new Page(namespace, 0, List.of(), 0, time, true));
        ledger.beginStream();
        return ledger;
    }

    private List<SourceRecord> firstOf(Ledger ledger, ClusterTime start) throws InterruptedException {
        SourceContext context = new SourceContext(configuration);
        SnapshotReads reads = Sources.reads(source);
        RereadSettings none = new RereadSettings("", new Properties());
        List<SourceRecord> records = null;
        try (SourceMetrics metrics = new SourceMetrics("p", "p");
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, start)) {
            Progress progress = new Progress("p", new Partitions("p"), ledger, metrics);
            Rereads rereads = new Rereads(progress, reads, none, context, namespace::equals);
            try (Streaming streaming = new Streaming(debezium, Optional.empty(), progress, reads, rereads, true)) {
                while (records == null) records = streaming.poll();
            }
            return new ArrayList<>(records);
        }
    }

    private static String operation(SourceRecord record) {
        return Optional.ofNullable(record.headers().lastWithName(RecordHeaders.OPERATION))
                .map(header -> new String((byte[]) header.value()))
                .orElse("none: to " + record.topic());
    }
}
