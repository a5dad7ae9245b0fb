package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import com.mongodb.client.MongoCollection;
import io.towpath.debezium.EventKey;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.ddl.TopicPartitions;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Re-reads between two events, at a real server whose collections are dropped and renamed at the same time. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class RereadsServerTest {
    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("rereads");
    private final String namespace = collection.getNamespace().getFullName();
    private final String topic = "p." + namespace;
    private final SourceContext context = new SourceContext(Map.of());
    private final SourceCluster source = Sources.connected(Sources.configuration());
    private final SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
    private final Ledger ledger = new Ledger(new Partitions("p"), context);
    private final Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, Rules.NONE);
    private final byte[] key = CanonicalKey.of(BsonBytes.of(BsonDocument.parse("{_id: 1}")));
    private SchemaCapture schema;
    private MockConsumer<byte[], byte[]> requests;
    private Rereads rereads;
    private ClusterTime position;

    /** A document that changed while its collection was copied in natural order is pending. */
    @BeforeEach
    void begin() throws InterruptedException {
        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
        ClusterTime first = source.now();
        server.fresh("other").insertOne(RawBsonDocument.parse("{_id: 1}"));
        position = source.now();
        ledger.begin("", first, List.of(namespace));
        RecordIds recordIds = new RecordIds("localhost:1", "table", first);
        ledger.plan(namespace, new RangePlan(List.of(RecordIds.position(3)), 5, 5, 1, Optional.of(recordIds)));
        ledger.advance(new Page(namespace, 0, List.of(), 0, first, RangePlan.OPEN_END));
        ledger.advance(new Page(namespace, 1, List.of(), 0, position, RangePlan.OPEN_END));
        ledger.beginStream();
        assertTrue(ledger.holds(namespace, key, position));
        TopicPartitions topics = new TopicPartitions("p", Map.of(), Optional.empty());
        schema = new SchemaCapture(source, namespace::equals, topics, progress, context);
        Optional<List<SourceRecord>> begun = Optional.empty();
        while (begun.isEmpty()) begun = schema.beginStream(position);
        rereads = rereads();
    }

    private Rereads rereads() {
        requests = new MockConsumer<>("earliest");
        return new Rereads(progress, Sources.reads(source), "requests", requests, context, namespace::equals, schema);
    }

    @AfterEach
    void close() {
        rereads.close();
        schema.close();
        source.close();
        metrics.close();
        server.close();
    }

    @ParameterizedTest
    @ValueSource(strings = {"drop", "rename", "view"})
    void nothingIsReadOrDeletedBeforeTheChangeThatTookTheCollection(String how) throws InterruptedException {
        take(how);

        assertEquals(0, of(rereads.read(position)), "records of documents");
        assertTrue(ledger.rows().nextPending().isPresent(), "the document waits");

        assertTrue(schema.readUpTo(source.now()));
        assertTrue(of(schema.take(source.now())) > 0, "the change itself");
        assertEquals(Optional.empty(), ledger.rows().nextPending());
    }

    @ParameterizedTest
    @ValueSource(strings = {"drop", "rename"})
    void noRequestIsAnsweredBeforeTheChangeThatTookTheCollection(String how) throws InterruptedException {
        request(0, new BsonInt32(1));
        assertEquals(1, of(rereads.read(position)), "the document that was pending");
        take(how);

        assertEquals(0, of(rereads.read(position)), "records of documents");
        assertTrue(schema.readUpTo(source.now()));
        assertTrue(of(schema.take(source.now())) > 0, "the change itself");

        assertEquals(1, of(next()), "the delete");
    }

    @Test
    void aRequestForANameThatIsAViewsByNowIsSkipped() throws InterruptedException {
        rereads.read(position);
        take("rename");
        assertTrue(schema.readUpTo(source.now()));
        schema.take(source.now());
        server.run("{create: '%s', viewOn: 'elsewhere', pipeline: []}"
                .formatted(collection.getNamespace().getCollectionName()));
        request(0, new BsonInt32(1));

        List<SourceRecord> answer = next();

        assertEquals(0, of(answer), "records of documents");
        assertEquals(1L, answer.get(0).sourceOffset().get("skipped"));
    }

    /** A foreign request may be larger than a command, and so may one of its _ids. */
    @Test
    @Tag("nightly")
    void aLargeRequestIsAnsweredInParts() throws InterruptedException {
        rereads.read(position);
        request(0, text(16 << 20));
        request(1, new BsonInt32(1), text((16 << 20) - 15));
        request(2, text(5_600_000), text(5_700_000), text(5_800_000));

        List<String> offsets = new ArrayList<>();
        while (offsets.size() < 5) {
            List<SourceRecord> answer = next();
            assertEquals(1, of(answer), "a document, or its delete");
            Map<String, ?> offset = answer.get(0).sourceOffset();
            offsets.add("%s %s %s".formatted(offset.get("next"), offset.get("index"), offset.get("skipped")));
        }
        assertEquals(List.of("1 1 1", "2 0 1", "2 1 1", "2 2 1", "3 0 1"), offsets);
    }

    @Test
    void skippedRequestsAreCountedFromTaskToTask() {
        for (long offset = 0; offset < 2; offset++) {
            requests.addRecord(new ConsumerRecord<>("requests", 0, offset, null, new byte[] {1}));
            rereads.isPending();
            SourceRecord read = rereads.skipped().orElseThrow();
            assertEquals(offset + 1, read.sourceOffset().get("skipped"));
            context.store(List.of(read));
            rereads.close();
            rereads = rereads();
        }
    }

    /** A record that exists for its offset only goes to a topic that takes none larger than 1 MB. */
    @Test
    void aResnapshotOfALongNameIsNotInTheLog() throws InterruptedException {
        rereads.read(position);
        BsonDocument request = new BsonDocument("resnapshot", text(2 << 20));
        requests.addRecord(new ConsumerRecord<>("requests", 0, 0, null, BsonBytes.of(request)));

        for (SourceRecord record : next()) assertTrue(((byte[]) record.value()).length < 1_000);
    }

    @Test
    void whatWasDeletedInACollectionThatIsThereIsDeleted() throws InterruptedException {
        collection.deleteOne(new BsonDocument());

        assertEquals(1, of(rereads.read(source.now())));
    }

    @ParameterizedTest
    @ValueSource(strings = {"drop", "rename", "view"})
    void aDocumentInPlaceOfALargeChangeIsLeftToTheChangeThatTookTheCollection(String how) throws InterruptedException {
        take(how);

        List<SourceRecord> records = inPlaceOfALargeChange().orElseThrow();

        assertEquals(0, of(records), "records of documents");
        assertEquals(Map.of("sec", 1, "ord", 1), records.get(0).sourceOffset(), "the stream's offset moves on");
    }

    @Test
    @Tag("nightly")
    void aDeleteIsNeitherLeftOutNorTakenForDoneWhileNothingIsKnownOfTheCollection() throws InterruptedException {
        collection.deleteOne(new BsonDocument());
        position = source.now();
        server.fail("alwaysOn", "failCommands: ['aggregate', 'getMore'], errorCode: 91");
        try {
            assertEquals(Optional.empty(), inPlaceOfALargeChange(), "it is tried again");
        } finally {
            server.fail("off", "");
        }

        assertEquals(1, of(inPlaceOfALargeChange().orElseThrow()), "the delete");
    }

    private void request(long offset, BsonValue... ids) {
        BsonDocument request =
                new BsonDocument("namespace", new BsonString(namespace)).append("ids", new BsonArray(List.of(ids)));
        requests.addRecord(new ConsumerRecord<>("requests", 0, offset, null, BsonBytes.of(request)));
    }

    private static BsonString text(int length) {
        return new BsonString("x".repeat(length));
    }

    /** The next answer, which may have to wait until a pause is over. */
    private List<SourceRecord> next() throws InterruptedException {
        while (!rereads.isPending()) TimeUnit.MILLISECONDS.sleep(100);
        return rereads.read(source.now());
    }

    private Optional<List<SourceRecord>> inPlaceOfALargeChange() throws InterruptedException {
        SourceRecord record =
                new SourceRecord(Map.of("server_id", "p"), Map.of("sec", 1, "ord", 1), "p", null, null, null);
        return new EventDocument(progress, Sources.reads(source), schema)
                .of(record, new EventKey(namespace, key, position, true));
    }

    private void take(String how) {
        MongoNamespace name = collection.getNamespace();
        if (how.equals("rename")) collection.renameCollection(new MongoNamespace(name.getDatabaseName(), "elsewhere"));
        else collection.drop();
        // of a collection that has a document with the same _id
        if (how.equals("view"))
            server.run("{create: '%s', viewOn: 'other', pipeline: []}".formatted(name.getCollectionName()));
    }

    private long of(List<SourceRecord> records) {
        return records.stream().filter(record -> record.topic().equals(topic)).count();
    }
}
