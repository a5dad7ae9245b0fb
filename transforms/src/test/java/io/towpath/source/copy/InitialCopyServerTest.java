package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.Document;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The whole copy of a collection. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class InitialCopyServerTest {
    private static final int COUNT = 3_000;

    private final Map<String, String> settings = Map.of(
            "towpath.copy.order", "natural",
            "towpath.copy.range.bytes", "5000",
            "towpath.copy.documents.per.second", "1000");

    @Test
    @Tag("nightly")
    void aCopyInNaturalOrderBeginsAnewWhenTheRecordIdsAreOthers() throws InterruptedException {
        SourceContext context = new SourceContext(Sources.configuration());
        try (Server server = new Server();
                SourceCluster source = Sources.connected(Sources.configuration());
                SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1))) {
            MongoCollection<RawBsonDocument> collection = server.fresh("again");
            collection.insertMany(IntStream.range(0, COUNT)
                    .mapToObj(id -> RawBsonDocument.parse("{_id: %d}".formatted(id)))
                    .toList());
            String namespace = collection.getNamespace().getFullName();
            Ledger ledger = new Ledger(new Partitions("p"), context);
            ledger.begin("", source.now(), List.of(namespace));
            Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, Rules.NONE);
            SnapshotReads reads = Sources.reads(source, settings);
            Map<String, String> rows = new HashMap<>();
            int copies = 1;
            InitialCopy copy = new InitialCopy(progress, reads, context);
            while (rows.isEmpty()) take(copy.poll(), rows, context);
            // the same documents in another table, in another order
            collection
                    .aggregate(List.of(
                            Document.parse("{$sort: {_id: -1}}"),
                            Document.parse("{$out: '%s'}"
                                    .formatted(collection.getNamespace().getCollectionName()))))
                    .toCollection();
            while (!ledger.isStreaming()) {
                take(copy.poll(), rows, context);
                if (!copy.isOver() || ledger.isStreaming()) continue;
                copy.close();
                copy = new InitialCopy(progress, reads, context);
                copies++;
            }
            copy.close();

            assertEquals(2, copies);
            Map<String, String> stored = new HashMap<>();
            collection.find().forEach(document -> put(stored, BsonBytes.of(document)));
            assertEquals(COUNT, stored.size());
            assertEquals(stored, rows);
            byte[] key = CanonicalKey.of(BsonBytes.of(RawBsonDocument.parse("{_id: 1}")));
            Ledger restarted = new Ledger(new Partitions("p"), context);
            assertTrue(restarted.holds(namespace, key, restarted.largestTime()));
            assertTrue(restarted.rows().nextPending().isPresent(), "rows of the former table are in the log");
        }
    }

    /** A transaction of thousands of topics takes longer than a broker allows. */
    @Test
    @Tag("nightly")
    void aTransactionHasRowsOfFewCollections() throws InterruptedException {
        int many = DebeziumStream.MOST_TOPICS + 20;
        SourceContext context = new SourceContext(Sources.configuration());
        try (Server server = new Server();
                SourceCluster source = Sources.connected(Sources.configuration());
                SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1))) {
            List<String> namespaces = IntStream.range(0, many)
                    .mapToObj(number -> {
                        MongoCollection<RawBsonDocument> collection = server.fresh("many_" + number);
                        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
                        return collection.getNamespace().getFullName();
                    })
                    .toList();
            Ledger ledger = new Ledger(new Partitions("p"), context);
            ledger.begin("", source.now(), namespaces);
            Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, Rules.NONE);
            Set<String> copied = new HashSet<>();
            int most = 0;
            try (InitialCopy copy = new InitialCopy(progress, Sources.reads(source, Map.of()), context)) {
                Thread.sleep(2_000); // nearly all reports wait
                while (!ledger.isStreaming()) {
                    List<SourceRecord> records = copy.poll();
                    if (records == null) continue;
                    context.store(records);
                    Set<String> topics = records.stream()
                            .map(SourceRecord::topic)
                            .filter(topic -> topic.startsWith("p."))
                            .collect(Collectors.toSet());
                    copied.addAll(topics);
                    most = Math.max(most, topics.size());
                }
            }
            assertEquals(many, copied.size());
            assertTrue(most > 20 && most <= DebeziumStream.MOST_TOPICS, "topics of a transaction: " + most);
        }
    }

    private static void take(List<SourceRecord> records, Map<String, String> rows, SourceContext context) {
        if (records == null) return;
        context.store(records);
        for (SourceRecord record : records) if (record.topic().startsWith("p.")) put(rows, (byte[]) record.value());
    }

    private static void put(Map<String, String> documents, byte[] document) {
        HexFormat hex = HexFormat.of();
        documents.put(hex.formatHex(CanonicalKey.of(document)), hex.formatHex(document));
    }
}
