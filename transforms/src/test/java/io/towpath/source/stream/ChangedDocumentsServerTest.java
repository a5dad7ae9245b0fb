package io.towpath.source.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import io.towpath.connector.Closing;
import io.towpath.connector.TextHeaders;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.Change;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.source.copy.Rows;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.RereadSettings;
import io.towpath.source.reread.Rereads;
import io.towpath.source.rules.Rules;
import io.towpath.support.Fuzz;
import io.towpath.support.LogModel;
import io.towpath.support.Server;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.Predicate;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The stream of a collection of which only some documents leave. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class ChangedDocumentsServerTest {
    private static final int LIVES = Fuzz.isNight() ? 3 : 2;
    private static final int MOST_POLLS = Fuzz.isNight() ? 25 : 10;
    private static final int IDS = 8;
    /** Documents with these ids are never selected. */
    private static final int NEVER = 100;

    private static final int LAST = 1_000;
    /** A transaction of more than two changes comes in parts. */
    private static final long SMALL = 5_000;

    private static final BsonDocument FILTER = BsonDocument.parse("{in: true}");

    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("changed");
    private final String namespace = collection.getNamespace().getFullName();
    private final Map<String, String> configuration = Sources.configuration();
    private final Rules rules =
            Rules.of("[{\"collections\": \"%s\", \"only\": %s}]".formatted(namespace, FILTER.toJson()), "");
    private SourceCluster source;
    private int lives;

    @BeforeEach
    void connect() {
        configuration.put("collection.include.list", namespace);
        configuration.put("max.batch.size", "3");
        configuration.put("max.queue.size", "6");
        configuration.put("poll.interval.ms", "10");
        configuration.put("heartbeat.interval.ms", "50");
        source = Sources.connected(configuration);
    }

    @AfterEach
    void close() {
        if (source != null) source.close();
        server.close();
    }

    @Test
    void theLogHoldsWhatIsSelectedAndNothingElseWhateverHappens() {
        server.requireTestCommands();
        collection.insertOne(RawBsonDocument.parse("{_id: 1}")); // no server reads it as of before it was made
        Fuzz.run("changed documents", 4, Duration.ofMinutes(3), random -> {
            collection.deleteMany(new BsonDocument());
            return new Life(random, ++lives % 2 == 0, random.nextBoolean() ? SMALL : Long.MAX_VALUE).run();
        });
    }

    /** At the end of the batch before, there was no such document. */
    @Test
    void aDocumentThatIsSelectedWhenItsRowIsReadAndNotAfterItIsDeleted() throws InterruptedException {
        Life life = quiet(true);
        select(false);
        life.live(true);
    }

    /** When its row was read is forgotten. */
    @Test
    void aDocumentIsDeletedThatWasSelectedOnlyWhenItsRowWasReadByACopyThatStartedAgain() throws InterruptedException {
        Life life = quiet(true);
        life.copyAgain();
        select(false);
        life.live(true);
    }

    /** A task may begin whose schema changes were read further than its stream, which continues at the stored offset. */
    @Test
    void noDocumentIsReadAsOfATimeThatTheStreamHasNotReached() throws InterruptedException {
        Life life = copied(true);
        configuration.putAll(Map.of("max.batch.size", "1", "max.queue.size", "2"));
        for (int id = 2; id <= 4; id++) collection.insertOne(life.document(id, true));
        life.read = source.now();
        life.liveUntil(ledger -> life.folded.containsKey(2));
        assertEquals(List.of(1, 2, 3, 4), List.copyOf(life.folded.keySet()));
        life.read = null;
        life.live(true);
    }

    /** The update and the document of the same batch have the same time. */
    @Test
    void anUpdateThatLeavesTheFilterAloneIsEmittedAsItIs() throws InterruptedException {
        Life life = copied(true);
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 1));
        life.live(true);
        assertEquals(1, life.updates);
    }

    /** The transaction selects it, but not in its first part. */
    @Test
    void anUpdateIsJudgedWithoutATransactionThatGoesOn() throws InterruptedException {
        Life life = copied(false);
        collection.updateOne(Filters.eq("_id", 1), Updates.set("n", 1));
        selectLast(true);
        life.live(true);
    }

    /** The time at which the log has its documents is that of the transaction, as of which all of it is seen. */
    @Test
    @Tag("nightly")
    void aDocumentThatALaterPartOfATransactionTakesOutIsDeleted() throws InterruptedException {
        Life life = copied(true);
        selectLast(false);
        life.live(true);
    }

    /** It was selected when the log got it, and not where the next task continues. */
    @Test
    @Tag("nightly")
    void aDocumentThatIsStillToBeReadWhenItsTaskEndsIsDeletedByTheNext() throws InterruptedException {
        Life life = copied(true);
        failToRead();
        select(false);
        ClusterTime changed = source.now();
        life.liveUntil(
                ledger -> life.position().filter(at -> at.isAfter(changed)).isPresent());
        server.fail("off", "");
        life.live(true);
    }

    /** It was selected when the log got it, and not at the end of the batch before the one with which it is read. */
    @Test
    @Tag("nightly")
    void aDocumentThatCouldNotBeReadForSomeBatchesIsDeleted() throws InterruptedException {
        Life life = copied(true);
        failToRead();
        select(false);
        ClusterTime changed = source.now();
        try (Life.Task task = life.new Task()) {
            task.runUntil(
                    ledger -> life.position().filter(at -> at.isAfter(changed)).isPresent());
            server.fail("off", "");
            task.runUntil(ledger -> ledger.rows().nextPending().isEmpty());
        }
        life.live(true);
    }

    /** Another document of the collection was read in between, and the next read of changed documents waits a second after a failure. */
    @Test
    @Tag("nightly")
    void aDocumentThatWaitsWithItsCollectionIsDeleted() throws InterruptedException {
        Life life = quiet(true);
        collection.insertOne(life.document(2, true));
        life.liveUntil(ledger -> life.folded.containsKey(2));
        configuration.put("poll.interval.ms", "10");
        try (Life.Task task = life.new Task()) {
            failToRead();
            select(false);
            task.runUntil(ledger -> ledger.rows().nextPending().isPresent());
            server.fail("off", "");
            collection.insertOne(life.document(3, true)); // the first is read between two events
            task.runUntil(ledger -> !life.folded.containsKey(1));
            collection.deleteOne(Filters.eq("_id", 2));
            task.runUntil(ledger -> !life.folded.containsKey(2)
                    || ledger.rows()
                            .nextPending()
                            .filter(pending -> pending.keys().size() == 2)
                            .isPresent());
            Thread.sleep(1_000);
            task.runUntil(ledger -> !life.folded.containsKey(2));
        }
    }

    /** The next task finds both changes in one batch, unless its position is behind the first. */
    @Test
    void aDocumentThatIsNotSelectedAnyMoreWhenTheNextTaskBeginsIsDeleted() throws InterruptedException {
        Life life = quiet(false);
        select(true);
        life.liveUntil(ledger -> life.folded.containsKey(1));
        select(false);
        life.live(true);
    }

    /** What is copied is one document, which only the test changes; its changes come in one batch. */
    private Life quiet(boolean isSelected) {
        configuration.putAll(Map.of("poll.interval.ms", "1000", "max.batch.size", "100", "max.queue.size", "200"));
        collection.insertOne(
                RawBsonDocument.parse("{_id: 5, in: false}")); // no server reads it as of before it was made
        Life life = new Life(new Random(), false, SMALL);
        collection.insertOne(RawBsonDocument.parse("{_id: 1, in: %s}".formatted(isSelected)));
        life.isQuiet = true;
        life.copy();
        return life;
    }

    /** As {@link #quiet}; the stream has passed the copy. */
    private Life copied(boolean isSelected) throws InterruptedException {
        Life life = quiet(isSelected);
        life.liveUntil(ledger -> ledger.rows().copies().isEmpty());
        return life;
    }

    /** As where an index was just built. */
    private void failToRead() {
        server.requireTestCommands();
        server.fail("alwaysOn", "failCommands: ['find'], namespace: '%s', errorCode: 246".formatted(namespace));
    }

    private void select(boolean isSelected) {
        collection.updateOne(Filters.eq("_id", 1), Updates.set("in", isSelected));
    }

    /** When it is read after the first part, it is a number, and has no field to set. */
    @Test
    @Tag("nightly")
    void anUpdateOfALaterPartOfATransactionIsNotAppliedAgain() throws InterruptedException {
        Life life = copied(false);
        try (ClientSession session = server.session()) {
            session.startTransaction();
            var fields = Updates.combine(Updates.set("in", true), Updates.set("a", new BsonDocument()));
            collection.updateOne(session, Filters.eq("_id", 1), fields);
            insertNever(session);
            collection.updateOne(session, Filters.eq("_id", 1), Updates.set("a.b", 1));
            collection.updateOne(session, Filters.eq("_id", 1), Updates.set("a", 5));
            session.commitTransaction();
        }
        collection.insertOne(life.document(2, true)); // ends the batch
        life.live(true);
    }

    private void insertNever(ClientSession session) {
        for (int id = NEVER; id < NEVER + 100; id++)
            collection.insertOne(session, RawBsonDocument.parse("{_id: %d, in: false}".formatted(id)));
    }

    /** In the last part of a transaction, after changes of documents that never leave. */
    private void selectLast(boolean isSelected) {
        try (ClientSession session = server.session()) {
            session.startTransaction();
            insertNever(session);
            collection.updateOne(session, Filters.eq("_id", 1), Updates.set("in", isSelected));
            session.commitTransaction();
        }
    }

    /** Random changes, and a task that is killed again and again. */
    private final class Life {
        private final Random random;
        private final boolean isFaulty;
        private final long mostBytes;
        private final SourceContext context = new SourceContext(configuration);
        /** What the log makes of each document. */
        private final SortedMap<Integer, LogModel> folded = new TreeMap<>();

        private final ClusterTime start = source.now();
        private ClusterTime copied;
        private int faults;
        private int updates;
        /** Up to when the schema changes were read; null for no further than the stream. */
        private ClusterTime read;
        /** Whether only the test changes documents. */
        private boolean isQuiet;

        /** @param mostBytes of a transaction: a larger one comes in parts */
        Life(Random random, boolean isFaulty, long mostBytes) {
            this.random = random;
            this.isFaulty = isFaulty;
            this.mostBytes = mostBytes;
        }

        String run() throws InterruptedException {
            for (int i = 0; i < 10; i++) change();
            copy();
            for (int life = 0; life < LIVES; life++) live(life == LIVES - 1);
            return (isFaulty ? "with faults" : "without faults") + (updates > 0 ? ", with updates" : "");
        }

        /** The rows are those of a time at which the stream is not yet. */
        private void copy() {
            Ledger ledger = new Ledger(new Partitions("p"), context);
            ledger.begin("", start, List.of(namespace));
            List<SourceRecord> records = new ArrayList<>();
            records.add(ledger.plan(namespace, new RangePlan(List.of(), 1, 1, 1)));
            List<byte[]> rows = new ArrayList<>();
            try (ClientSession session = source.snapshot(source.now())) {
                SnapshotReads reads = Sources.reads(source, Map.of(), rules);
                reads.documents(namespace, session, new BsonDocument()).forEachRemaining(rows::add);
                ClusterTime time = ClusterTime.of(session.getSnapshotTimestamp());
                copied = time;
                Page page = new Page(namespace, 0, rows, 0, time, true);
                try (SourceMetrics metrics = metrics()) {
                    Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, rules);
                    records.addAll(new Rows(progress, namespace, Map.of("rows", 0), ledger.advance(page))
                            .records(rows, List.of(), time));
                }
                records.add(ledger.rangeRecord(namespace, 0));
            }
            ledger.beginStream();
            records.add(ledger.rootRecord());
            commit(records);
        }

        /** As for a resnapshot, while the stream is still before the rows. */
        private void copyAgain() {
            Ledger ledger = new Ledger(new Partitions("p"), context);
            commit(ledger.copyAgain("again", List.of(namespace), source.now(), false));
        }

        private void live(boolean isLast) throws InterruptedException {
            try (Task task = new Task()) {
                for (int i = random.nextInt(4, MOST_POLLS); i > 0 && !isQuiet; i--) {
                    for (int changes = random.nextInt(5); changes > 0; changes--) change();
                    if (isFaulty && random.nextInt(8) == 0) fail();
                    List<SourceRecord> records = task.streaming.poll();
                    if (isLast || i > 1 || random.nextBoolean()) task.commit(records);
                    else if (records != null) return; // killed before its transaction was committed
                }
                server.fail("off", "");
                if (!isLast) return;
                collection.insertOne(document(LAST, true));
                task.runUntil(ledger ->
                        folded.containsKey(LAST) && ledger.rows().nextPending().isEmpty());
                assertEquals(selected(), folded());
            }
        }

        /** Where the next task continues. */
        private Optional<ClusterTime> position() {
            return EventTime.of(context.offset(DebeziumStream.partition(configuration)));
        }

        /** A task that is killed once that is so. */
        private void liveUntil(Predicate<Ledger> isEnough) throws InterruptedException {
            try (Task task = new Task()) {
                task.runUntil(isEnough);
            }
        }

        private List<BsonDocument> folded() {
            return folded.values().stream().map(LogModel::document).toList();
        }

        private final class Task implements AutoCloseable {
            private final Ledger ledger = new Ledger(new Partitions("p"), context);
            private final SourceMetrics metrics = metrics();
            private final DebeziumStream debezium =
                    new DebeziumStream(context, configuration, source, start.previous(), mostBytes);
            private final Streaming streaming;

            Task() {
                Progress progress = new Progress("p", new Partitions("p"), ledger, metrics, rules);
                SnapshotReads reads = Sources.reads(source, Map.of(), rules);
                RereadSettings none = new RereadSettings("", new Properties());
                Rereads rereads = new Rereads(progress, reads, none, context, namespace::equals, null);
                Optional<ClusterTime> last = Optional.ofNullable(read).or(Life.this::position);
                streaming = new Streaming(debezium, last, progress, reads, rereads, null, false);
            }

            private void runUntil(Predicate<Ledger> isEnough) throws InterruptedException {
                for (long end = System.nanoTime() + 20_000_000_000L; !isEnough.test(ledger); ) {
                    assertFalse(System.nanoTime() > end, () -> "nothing comes: " + folded);
                    commit(streaming.poll());
                }
            }

            /** @param records null for none */
            private void commit(List<SourceRecord> records) {
                if (records == null) return;
                Life.this.commit(records);
                if (isFaulty) return;
                Optional<ClusterTime> time = timeOf(records);
                if (debezium.cut().isEmpty() && ledger.rows().nextPending().isEmpty())
                    time.ifPresent(Life.this::requireState);
            }

            @Override
            public void close() {
                Closing.all(streaming, debezium, metrics);
            }
        }

        /** All of a batch has the time of its end; empty for a batch without changes. */
        private Optional<ClusterTime> timeOf(List<SourceRecord> records) {
            List<ClusterTime> times = records.stream()
                    .filter(record -> record.topic().equals("p." + namespace))
                    .map(record ->
                            TextHeaders.read(record, RecordHeaders.Part.TIME).orElseThrow())
                    .map(ClusterTime::parse)
                    .distinct()
                    .toList();
            assertTrue(times.size() <= 1, () -> "times of one batch: " + times);
            return times.stream().findFirst();
        }

        /** The log up to the end of a batch is what is selected then. */
        private void requireState(ClusterTime time) {
            if (copied.isAfter(time)) return;
            List<BsonDocument> documents = new ArrayList<>();
            try (ClientSession session = source.snapshot(time)) {
                SnapshotReads reads = Sources.reads(source, Map.of(), rules);
                reads.documents(namespace, session, new BsonDocument())
                        .forEachRemaining(document -> documents.add(new RawBsonDocument(document)));
            }
            assertEquals(documents, folded());
        }

        private List<BsonDocument> selected() {
            return collection
                    .find(FILTER, BsonDocument.class)
                    .sort(new BsonDocument("_id", new BsonInt32(1)))
                    .into(new ArrayList<>());
        }

        private void fail() {
            if (faults++ > 3) return;
            // the driver tries once more after the second
            String fault =
                    random.nextBoolean() ? "errorCode: 246" : "errorCode: 11600, errorLabels: ['RetryableReadError']";
            server.fail(
                    "{times: %d}".formatted(random.nextInt(1, 5)),
                    "failCommands: ['find'], namespace: '%s', %s".formatted(namespace, fault));
        }

        private void commit(List<SourceRecord> records) {
            context.store(records);
            for (SourceRecord record : records) {
                if (!record.topic().equals("p." + namespace)) continue;
                int id = new RawBsonDocument((byte[]) record.key())
                        .getNumber("_id")
                        .intValue();
                assertFalse(
                        id >= NEVER && id < LAST && (!isFaulty || record.value() != null),
                        () -> id + " is not selected, and is in the log");
                byte[] value = (byte[]) record.value();
                if (value != null && Change.decode(value) instanceof Change.Update update) {
                    assertTrue(folded.containsKey(id), () -> "an update of %d, which is not in the log".formatted(id));
                    update.set().keySet().forEach(path -> requireParent(folded.get(id), path));
                    updates++;
                }
                LogModel model = folded.computeIfAbsent(id, any -> new LogModel());
                model.apply(value);
                if (model.document() == null) folded.remove(id);
            }
        }

        private static void requireParent(LogModel model, String path) {
            int dot = path.lastIndexOf('.');
            if (dot < 0) return;
            assertTrue(model.at(path.substring(0, dot)).isDocument(), () -> "no server sets %s in %s"
                    .formatted(path, model.document()));
        }

        private void change() {
            if (random.nextInt(5) > 0) {
                change(null);
                return;
            }
            try (ClientSession session = server.session()) {
                session.startTransaction();
                for (int i = random.nextInt(2, 6); i > 0; i--) change(session);
                session.commitTransaction();
            }
        }

        private void change(ClientSession given) {
            boolean isNever = random.nextInt(4) == 0;
            int id = isNever ? NEVER + random.nextInt(3) : random.nextInt(IDS);
            boolean isIn = !isNever && random.nextBoolean();
            var at = Filters.eq("_id", id);
            try (ClientSession own = server.session()) {
                ClientSession session = given == null ? own : given;
                switch (random.nextInt(4)) {
                    case 0 -> collection.deleteOne(session, at);
                    case 1 -> collection.replaceOne(session, at, document(id, isIn), new ReplaceOptions().upsert(true));
                    case 2 -> collection.updateOne(session, at, Updates.inc("n", 1));
                    default -> collection.updateOne(
                            session,
                            at,
                            Updates.combine(Updates.set("in", isIn), Updates.inc("n", 1)),
                            new UpdateOptions().upsert(true));
                }
            }
        }

        private RawBsonDocument document(int id, boolean isIn) {
            return RawBsonDocument.parse("{_id: %d, in: %s, n: %d}".formatted(id, isIn, random.nextInt(1_000)));
        }

        private SourceMetrics metrics() {
            return new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
        }
    }
}
