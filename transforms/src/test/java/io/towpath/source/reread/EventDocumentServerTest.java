package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import io.towpath.debezium.EventKey;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Documents in place of changes that are too large, at a real server. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class EventDocumentServerTest {
    private static final ClusterTime LONG_AGO = new ClusterTime(1, 1);

    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("oversized");
    private final Map<String, String> configuration = Sources.configuration();
    private final SourceCluster source = Sources.connected(configuration);
    private final Ledger ledger = new Ledger(new Partitions("p"), new SourceContext(configuration));
    private final byte[] key = CanonicalKey.of(bytes("{_id: 1}"));

    @AfterEach
    void close() {
        source.close();
        server.close();
    }

    @Test
    void aDocumentOfADroppedCollectionIsGone() throws InterruptedException {
        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
        collection.drop();
        ClusterTime before = source.now();

        List<SourceRecord> records = readAsOf(LONG_AGO);

        assertEquals(1, records.size());
        assertNull(records.get(0).value());
        assertHeldSince(before);
    }

    @Test
    void aDocumentWhoseMomentIsNotHeldAnyMoreIsReadAsOfNow() throws InterruptedException {
        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
        ClusterTime before = source.now();

        List<SourceRecord> records = readAsOf(LONG_AGO);

        assertTrue(java.util.Arrays.equals(
                bytes("{_id: 1}"), (byte[]) records.get(0).value()));
        assertHeldSince(before);
    }

    private List<SourceRecord> readAsOf(ClusterTime time) throws InterruptedException {
        ledger.begin("", time, List.of());
        SourceRecord record =
                new SourceRecord(Map.of("server_id", "p"), Map.of("sec", 1, "ord", 1), "p", null, null, null);
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1))) {
            Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, Rules.NONE);
            return new EventDocument(progress, Sources.reads(source), null)
                    .of(record, new EventKey(namespace(), key, time, true))
                    .orElseThrow();
        }
    }

    private void assertHeldSince(ClusterTime before) {
        assertTrue(ledger.holds(namespace(), key, before), "what was done up to the read is in it");
        assertFalse(ledger.holds(namespace(), key, source.now().next()), "what is done later is not");
    }

    private String namespace() {
        return collection.getNamespace().getFullName();
    }

    private static byte[] bytes(String json) {
        RawBsonDocument document = RawBsonDocument.parse(json);
        byte[] bytes = new byte[document.getByteBuffer().remaining()];
        document.getByteBuffer().get(bytes);
        return bytes;
    }
}
