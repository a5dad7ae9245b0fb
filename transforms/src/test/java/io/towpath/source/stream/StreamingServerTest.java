package io.towpath.source.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.towpath.connector.TextHeaders;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.RereadSettings;
import io.towpath.source.reread.Rereads;
import io.towpath.source.rules.Rules;
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

    @Test
    void theEventsOfATransactionAreOfOnePoll() throws InterruptedException {
        configuration.put("heartbeat.interval.ms", "100");
        collection.insertOne(document("{_id: 0}"));
        ClusterTime start = source.now().next();
        try (ClientSession session = server.session()) {
            session.startTransaction();
            for (int id = 1; id <= 5; id++) collection.insertOne(session, document("{_id: %d}", id));
            session.commitTransaction();
        }
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = new Ledger(new Partitions("p"), context);
        ledger.begin("", start, List.of());
        ledger.beginStream();

        List<List<String>> polls = new ArrayList<>();
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, start);
                Streaming streaming = streaming(context, ledger, metrics, debezium)) {
            while (polls.isEmpty()) {
                List<String> poll = poll(streaming, context);
                if (!poll.isEmpty()) polls.add(poll);
            }
        }

        assertEquals(List.of(List.of("1c", "2c", "3c", "4c", "5c")), polls);
    }

    @Test
    void anUpdateThatIsLookedUpHoldsWhatWasDoneByThen() throws InterruptedException {
        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
        ClusterTime start = source.now().next();
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 1));
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 2));
        Ledger ledger = new Ledger(new Partitions("p"), new SourceContext(configuration));
        ledger.begin("", start, List.of());
        ledger.beginStream();

        SourceRecord first = firstOf(ledger, start).get(0);

        assertEquals(
                2, new RawBsonDocument((byte[]) first.value()).getInt32("n").getValue(), "n after the first update");
    }

    /** Also while no row is remembered: there were too many documents to read each in place of its event. */
    @Test
    void noChangeOfAPendingDocumentIsEmittedBeforeItIsReread() throws InterruptedException {
        collection.insertOne(document("{_id: 1}"));
        ClusterTime start = source.now().next();
        collection.replaceOne(Filters.eq("_id", 1), document("{_id: 1, n: 1}"));
        collection.insertOne(document("{_id: 2}"));
        collection.insertOne(document("{_id: 3}"));
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = new Ledger(new Partitions("p"), context);
        ledger.begin("", start, List.of());
        ledger.beginStream();
        ledger.addPending(namespace, CanonicalKey.of(BsonBytes.of(document("{_id: 1}"))));

        List<String> emitted = emitted(context, ledger, start, "1r");

        assertEquals(
                List.of("1r"),
                emitted.stream().filter(one -> one.startsWith("1")).toList());
        assertEquals(Optional.empty(), ledger.rows().nextPending());
    }

    @Test
    @Tag("nightly")
    void whatChangedDuringACopyInNaturalOrderIsRereadOnceAlsoAfterARestart() throws InterruptedException {
        server.requireTestCommands();
        for (int id = 1; id <= 5; id++) collection.insertOne(document("{_id: %d, n: 0}", id));
        ClusterTime first = source.now();
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 1));
        collection.deleteOne(Filters.eq("_id", 2));
        collection.replaceOne(Filters.eq("_id", 3), document("{_id: 3, n: 1}"));
        collection.deleteOne(Filters.eq("_id", 4));
        collection.insertOne(document("{_id: 4, n: 1}"));
        collection.insertOne(document("{_id: 6, n: 1}"));
        ClusterTime last = source.now();
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 2));
        collection.updateOne(Filters.eq("_id", 5), Updates.set("n", 2));
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = copiedInPieces(context, first, last);

        server.fail("alwaysOn", "failCommands: ['find'], namespace: '%s', errorCode: 246".formatted(namespace));
        List<String> waiting = emitted(context, ledger, first, "5u");
        server.fail("off", "");
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 3));
        collection.insertOne(document("{_id: 7}"));
        List<String> reread = emitted(context, new Ledger(new Partitions("p"), context), first, "7c");
        collection.insertOne(document("{_id: 8}"));
        List<String> later = emitted(context, new Ledger(new Partitions("p"), context), first, "8c");

        assertEquals(List.of("5u"), waiting, "of the others nothing is emitted before they are re-read");
        assertEquals(
                List.of("1r", "2d", "3r", "4r", "6r"),
                reread.stream().limit(5).sorted().toList());
        assertTrue(List.of("1u", "7c").containsAll(reread.subList(5, reread.size())), reread::toString);
        assertEquals(List.of("8c"), later, "nothing comes again");
        assertTrue(new Ledger(new Partitions("p"), context).rows().copies().isEmpty());
    }

    @Test
    @Tag("nightly")
    void whatARereadRowHoldsDoesNotComeAgainAfterARestart() throws InterruptedException {
        server.requireTestCommands();
        collection.insertMany(List.of(document("{_id: 1}"), document("{_id: 5}")));
        ClusterTime first = source.now();
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 1));
        ClusterTime last = source.now();
        collection.updateOne(Filters.eq("_id", 5), Updates.set("n", 1));
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 2)); // dropped before the document can be re-read
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = copiedInPieces(context, first, last);
        server.fail("alwaysOn", "failCommands: ['find'], namespace: '%s', errorCode: 246".formatted(namespace));

        List<String> emitted = new ArrayList<>();
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, first);
                Streaming streaming = streaming(context, ledger, metrics, debezium)) {
            while (!emitted.contains("5u")) emitted.addAll(poll(streaming, context));
            for (long end = System.nanoTime() + 3_000_000_000L; System.nanoTime() < end; )
                emitted.addAll(poll(streaming, context));
            server.fail("off", "");
            collection.insertOne(document("{_id: 7}"));
            while (!emitted.contains("1r")) emitted.addAll(poll(streaming, context));
        }
        collection.insertOne(document("{_id: 8}"));

        assertEquals(List.of("5u", "1r"), emitted);
        assertEquals(List.of("7c", "8c"), emitted(context, new Ledger(new Partitions("p"), context), first, "8c"));
    }

    @Test
    @Tag("nightly")
    void updatesAreMarkedWhileTheRowsOfAnAddedCollectionAreRead() throws InterruptedException {
        server.requireTestCommands();
        configuration.put("towpath.whole.documents", "false");
        configuration.put("capture.mode", "change_streams");
        collection.insertMany(List.of(document("{_id: 1}"), document("{_id: 2}")));
        ClusterTime start = source.now().next();
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = new Ledger(new Partitions("p"), context);
        ledger.begin("", start, List.of());
        ledger.beginStream();
        context.store(ledger.reselect("", List.of(namespace), List.of()));
        server.fail("alwaysOn", "failCommands: ['find'], namespace: '%s', errorCode: 246".formatted(namespace));
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 1));
        collection.insertOne(document("{_id: 3}"));
        List<String> before = emitted(context, ledger, start, "3c");
        collection.replaceOne(Filters.eq("_id", 2), document("{_id: 2, n: 1}"));
        collection.updateOne(Filters.eq("_id", 2), Updates.set("n", 2));
        collection.insertOne(document("{_id: 4}"));
        List<String> resumed = emitted(context, new Ledger(new Partitions("p"), context), start, "4c");
        server.fail("off", "");
        collection.insertOne(document("{_id: 5}"));
        List<String> read = emitted(context, new Ledger(new Partitions("p"), context), start, "3r");
        collection.updateOne(Filters.eq("_id", 2), Updates.set("n", 3));
        collection.deleteOne(Filters.eq("_id", 2));
        List<String> after = emitted(context, new Ledger(new Partitions("p"), context), start, "2d");

        assertEquals(List.of("1u row follows", "3c"), before);
        assertEquals(List.of("2u", "2u row follows", "4c"), resumed, "a replacement makes its document");
        assertTrue(read.containsAll(List.of("1r", "2r", "3r")), read::toString);
        assertEquals(
                List.of("2u", "2d"),
                after.stream().filter(each -> each.startsWith("2")).toList());
    }

    @Test
    void aHeartbeatComesOnceForEachPosition() throws InterruptedException {
        collection.insertOne(document("{_id: 1}"));
        ClusterTime start = source.now().next();
        configuration.put("heartbeat.interval.ms", "20");
        configuration.put("poll.interval.ms", "10");
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = new Ledger(new Partitions("p"), context);
        ledger.begin("", start, List.of());
        ledger.beginStream();

        List<Map<String, ?>> positions = new ArrayList<>();
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, start);
                Streaming streaming = streaming(context, ledger, metrics, debezium)) {
            long end = Long.MAX_VALUE;
            for (boolean isWritten = false; System.nanoTime() < end; ) {
                List<SourceRecord> records = streaming.poll();
                if (records != null) records.forEach(record -> positions.add(record.sourceOffset()));
                if (isWritten || positions.isEmpty()) continue;
                isWritten = true;
                collection.insertOne(document("{_id: 2}"));
                end = System.nanoTime() + 1_500_000_000L;
            }
        }

        assertEquals(positions.stream().distinct().toList(), positions);
        assertTrue(positions.size() >= 2, "the insert, and a heartbeat before it: " + positions);
    }

    @Test
    void betweenRoundsTheStreamRunsUpToThePresentOfASourceThatIsIdle() throws InterruptedException {
        configuration.put("heartbeat.interval.ms", "100");
        collection.insertOne(document("{_id: 1}"));
        ClusterTime start = source.now();
        SourceContext context = new SourceContext(configuration);
        Ledger ledger = new Ledger(new Partitions("p"), context);
        ledger.begin("", start, List.of(namespace));
        ledger.plan(namespace, new RangePlan(List.of(), 2, 2, 1));
        byte[] upTo = CanonicalKey.of(BsonBytes.of(document("{_id: 1}")));
        ledger.advance(new Page(namespace, 0, List.of(), 0, start, upTo));
        collection.insertOne(document("{_id: 0}")); // in the part that is read
        collection.insertOne(document("{_id: 7}"));
        ledger.catchUp();

        List<String> emitted = new ArrayList<>();
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, start.previous());
                Streaming streaming = streaming(context, ledger, metrics, debezium)) {
            while (!ledger.isCopying()) emitted.addAll(poll(streaming, context));
            ClusterTime present = source.now();
            assertFalse(start.next().isAfter(ledger.start()), "it has passed what was written");
            Ledger next = new Ledger(new Partitions("p"), context);
            assertEquals(List.of(2L, ledger.start()), List.of(next.round(), next.start()));
            ledger.advance(new Page(namespace, 0, List.of(), 0, present, true));
            ledger.beginStream();
            collection.insertOne(document("{_id: 8}"));
            while (!emitted.contains("8c")) emitted.addAll(poll(streaming, context));
        }

        assertEquals(List.of("0c", "8c"), emitted, "the row of 7 was read later");
        assertTrue(ledger.rows().copies().isEmpty());
    }

    private Ledger copiedInPieces(SourceContext context, ClusterTime first, ClusterTime last) {
        RecordIds recordIds = new RecordIds("localhost:1", "table", first);
        Ledger ledger = new Ledger(new Partitions("p"), context);
        ledger.begin("", first, List.of(namespace));
        List<byte[]> bounds = List.of(RecordIds.position(3));
        SourceRecord plan = ledger.plan(namespace, new RangePlan(bounds, 5, 5, 1, Optional.of(recordIds)));
        List<SourceRecord> records = new ArrayList<>(List.of(plan));
        for (int range = 0; range < 2; range++) {
            ledger.advance(new Page(namespace, range, List.of(), 0, range == 0 ? last : first, RangePlan.OPEN_END));
            records.add(ledger.rangeRecord(namespace, range));
        }
        ledger.beginStream();
        records.add(ledger.rootRecord());
        context.store(records);
        return ledger;
    }

    /** What one life of the task emits, up to a record. */
    private List<String> emitted(SourceContext context, Ledger ledger, ClusterTime start, String until)
            throws InterruptedException {
        List<String> emitted = new ArrayList<>();
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, start);
                Streaming streaming = streaming(context, ledger, metrics, debezium)) {
            while (!emitted.contains(until)) emitted.addAll(poll(streaming, context));
        }
        return emitted;
    }

    /** Id and operation of each record about a document. */
    private List<String> poll(Streaming streaming, SourceContext context) throws InterruptedException {
        List<SourceRecord> records = streaming.poll();
        if (records == null) return List.of();
        context.store(records);
        return records.stream()
                .filter(record -> record.topic().equals("p." + namespace))
                .map(record -> new RawBsonDocument((byte[]) record.key())
                                .getNumber("_id")
                                .intValue()
                        + operation(record)
                        + (TextHeaders.rowFollows(record) ? " row follows" : ""))
                .toList();
    }

    private Streaming streaming(SourceContext context, Ledger ledger, SourceMetrics metrics, DebeziumStream debezium) {
        Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, Rules.NONE);
        SnapshotReads reads = Sources.reads(source);
        RereadSettings none = new RereadSettings("", new Properties());
        Rereads rereads = new Rereads(progress, reads, none, context, namespace::equals, null);
        Optional<ClusterTime> last = EventTime.of(context.offset(DebeziumStream.partition(configuration)));
        boolean wholeDocuments = configuration.get("towpath.whole.documents").equals("true");
        return new Streaming(debezium, last, progress, reads, rereads, null, wholeDocuments);
    }

    private static RawBsonDocument document(String json, Object... values) {
        return RawBsonDocument.parse(json.formatted(values));
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
        List<SourceRecord> records = null;
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
                DebeziumStream debezium = new DebeziumStream(context, configuration, source, start);
                Streaming streaming = streaming(context, ledger, metrics, debezium)) {
            while (records == null) records = streaming.poll();
        }
        return new ArrayList<>(records);
    }

    private static String operation(SourceRecord record) {
        return TextHeaders.read(record, RecordHeaders.Part.OPERATION).orElse("none: to " + record.topic());
    }
}
