package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.ServerAddress;
import com.mongodb.client.ClientSession;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import io.towpath.debezium.EventKey;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
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
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Many documents in place of events: what is remembered of them stays small. */
class EventDocumentTest {
    private static final String NAMESPACE = "shop.orders";
    private static final ClusterTime TIME = new ClusterTime(5, 1);
    /** As many as the root offset has. */
    private static final int MOST = 5_000;

    /** What the source says to each read; null where it answers. */
    private String error;

    private final SourceContext context = new SourceContext(Map.of());
    private final Ledger ledger = new Ledger(new Partitions("p"), context);
    private final SourceMetrics metrics = new SourceMetrics("documents", "p", "p", new CopyShare(0, 1));
    private final SourceCluster source = new SourceCluster(Map.of(), client(), "p");
    private final EventDocument documents = new EventDocument(
            new Progress("p", new Partitions("p"), ledger, metrics, Rules.NONE), Sources.reads(source), null);

    @AfterEach
    void close() {
        metrics.close();
        source.close();
    }

    /** All that is remembered is in each of its offsets. */
    @Test
    void whatIsRememberedOfTheDocumentsOfAPollIsOneOffset() throws InterruptedException {
        ledger.begin("", new ClusterTime(1, 1), List.of());
        for (int id = 0; id < 3; id++) {
            List<SourceRecord> records = read(id);
            assertEquals(1, records.size());
            assertNull(records.get(0).value(), "the source has no documents here");
        }
        SourceRecord offset = ledger.newDocuments().orElseThrow();
        assertEquals(3, ((String) offset.sourceOffset().get("read")).split(",").length);
        assertEquals(Optional.empty(), ledger.newDocuments());
    }

    @Test
    void ofMoreThanTheOffsetHasRoomForTheRestIsReadLater() throws InterruptedException {
        ledger.begin("", new ClusterTime(1, 1), List.of());
        ledger.beginStream();
        for (int id = 0; id < MOST; id++) ledger.addDocument(NAMESPACE, key(id), TIME, false);
        String read = (String) ledger.rootRecord().sourceOffset().get("read");
        assertTrue(read.length() < 500_000, () -> read.length() + " bytes");

        assertEquals(0, read(MOST).size());
        assertTrue(ledger.holds(NAMESPACE, key(MOST), TIME.next()), "until it is re-read");
        context.store(ledger.newPending());
        Ledger again = new Ledger(new Partitions("p"), context);
        assertTrue(again.rows().isPending(NAMESPACE, key(MOST)));

        ledger.forget(TIME.next(), false);
        assertEquals(1, read(MOST + 1).size());
        assertFalse(ledger.rows().isPending(NAMESPACE, key(MOST + 1)));
    }

    /** Otherwise the stream would wait for it forever, also for the change that takes the collection. */
    @Test
    void ofACappedCollectionTheDocumentWaitsAndTheStreamDoesNot() throws InterruptedException {
        ledger.begin("", new ClusterTime(1, 1), List.of());
        ledger.beginStream();
        error = "Reading from capped collections with readConcern snapshot is not supported";
        assertEquals(0, read(1).size());
        assertTrue(ledger.holds(NAMESPACE, key(1), TIME.next()), "until it is re-read");
        ledger.gone(List.of(NAMESPACE), TIME.next());
        assertFalse(ledger.holds(NAMESPACE, key(1), TIME.next()));
    }

    private List<SourceRecord> read(int id) throws InterruptedException {
        SourceRecord record =
                new SourceRecord(Map.of("server_id", "p"), Map.of("sec", 5, "ord", 1), "p", null, null, null);
        return documents
                .of(record, new EventKey(NAMESPACE, key(id), TIME, false))
                .orElseThrow();
    }

    private static byte[] key(int id) {
        return CanonicalKey.of(BsonBytes.of(new BsonDocument("_id", new BsonInt32(id))));
    }

    /** Of a source without documents. */
    private MongoClient client() {
        MongoCursor<?> cursor = fake(
                MongoCursor.class, (none, method, given) -> method.getName().equals("hasNext") ? false : null);
        FindIterable<?> found = fake(FindIterable.class, (find, method, given) -> {
            if (error != null) throw unavailable();
            return method.getName().equals("iterator") ? cursor : find; // sort, hint, map…
        });
        MongoCollection<?> collection = fake(
                MongoCollection.class, (all, method, given) -> method.getName().equals("find") ? found : all);
        BsonDocument now = new BsonDocument("operationTime", TIME.timestamp());
        MongoDatabase database = fake(MongoDatabase.class, (all, method, given) -> switch (method.getName()) {
            case "getCollection" -> collection;
            case "runCommand" -> now;
            default -> all; // with…
        });
        return fake(MongoClient.class, (client, method, given) -> switch (method.getName()) {
            case "getDatabase" -> database;
            case "startSession" -> fake(ClientSession.class, (session, call, argument) -> null);
            default -> null;
        });
    }

    private MongoCommandException unavailable() {
        BsonDocument reply = new BsonDocument("code", new BsonInt32(246)).append("errmsg", new BsonString(error));
        return new MongoCommandException(reply, new ServerAddress());
    }

    private static <T> T fake(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
