package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.mongodb.client.ListCollectionsIterable;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoDatabase;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What becomes of a request, by what the source says of its collection. */
class RereadsTest {
    private final MockConsumer<byte[], byte[]> requests = new MockConsumer<>("earliest");

    /** A destination that has the view takes neither rows nor deletes of it. */
    @ParameterizedTest
    @ValueSource(strings = {"view", "timeseries"})
    void aRequestForANameThatIsAViewsByNowIsSkipped(String type) throws InterruptedException {
        SourceContext context = new SourceContext(Map.of());
        Partitions partitions = new Partitions("p");
        Ledger ledger = new Ledger(partitions, context);
        ledger.begin("", new ClusterTime(1, 1), List.of());
        ledger.beginStream();
        try (SourceMetrics metrics = new SourceMetrics("rereads", "p", "p", new CopyShare(0, 1));
                SourceCluster source = new SourceCluster(Map.of(), client(type), "p");
                Rereads rereads = new Rereads(
                        new Progress("p", partitions, ledger, metrics, Rules.NONE),
                        Sources.reads(source),
                        "requests",
                        requests,
                        context,
                        namespace -> true,
                        null)) {
            byte[] request = BsonBytes.of(BsonDocument.parse("{namespace: 'shop.orders', ids: [1]}"));
            requests.addRecord(new ConsumerRecord<>("requests", 0, 0, null, request));

            List<SourceRecord> answer = rereads.read(new ClusterTime(5, 1));

            assertEquals(
                    List.of(Map.of("next", 1L, "index", 0L, "waiting", "", "skipped", 1L)),
                    answer.stream().map(SourceRecord::sourceOffset).toList());
            assertEquals(Partitions.HEARTBEATS + "p", answer.get(0).topic(), "no record of a document");
            assertFalse(rereads.isPending());
        }
    }

    /** Knows the type of the collection, and fails at everything else. */
    private static MongoClient client(String type) {
        BsonDocument described = BsonDocument.parse("{name: 'orders', type: '%s', options: {}}".formatted(type));
        return fake(MongoClient.class, (client, method, given) -> switch (method.getName()) {
            case "getDatabase" -> database(described);
            case "close" -> null;
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    private static MongoDatabase database(BsonDocument described) {
        return fake(MongoDatabase.class, (database, method, given) -> switch (method.getName()) {
            case "withCodecRegistry" -> database;
            case "listCollections" -> fake(ListCollectionsIterable.class, (found, step, argument) -> {
                if (!step.getName().equals("into")) return found;
                return into(argument[0], described);
            });
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    @SuppressWarnings("unchecked")
    private static Object into(Object target, BsonDocument described) {
        ((Collection<BsonDocument>) target).add(described);
        return target;
    }

    private static <T> T fake(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
