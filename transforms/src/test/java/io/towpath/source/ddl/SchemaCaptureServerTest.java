package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.SchemaChange;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.support.Fuzz;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Schema changes of a real source, and what two destinations make of the log: one that renames, and one that replays. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
@Timeout(value = 180, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SchemaCaptureServerTest {
    private final Server server = new Server();
    private final MongoDatabase database =
            server.client().getDatabase(server.fresh("x").getNamespace().getDatabaseName());
    private final MongoDatabase other = server.client().getDatabase(database.getName() + "_other");
    private final Replica live = new Replica("p", true);
    private final Replica replayed = new Replica("p", false);
    /** All of the two databases, but no collection whose name begins with {@code un}. */
    private final String selection = "(?:%s|%s)\\.(?!un|system\\.).+".formatted(database.getName(), other.getName());

    private final SourceLife source = new SourceLife(selection, this::take);
    private final AtomicBoolean isDone = new AtomicBoolean();
    private final List<Throwable> failures = new ArrayList<>();
    private int markers;

    private void take(List<SourceRecord> records) {
        live.apply(records);
        replayed.apply(records);
    }

    @BeforeEach
    void empty() {
        database.drop();
        other.drop();
    }

    @AfterEach
    void close() {
        source.close();
        database.drop();
        other.drop();
        server.close();
    }

    private String name(String collection) {
        return database.getName() + "." + collection;
    }

    private void run(String command, Object... values) {
        database.runCommand(BsonDocument.parse(command.formatted(values)));
    }

    private void insert(String collection, int id) {
        collection(collection).insertOne(new BsonDocument("_id", new BsonInt32(id)));
    }

    private MongoCollection<BsonDocument> collection(String name) {
        return database.getCollection(name, BsonDocument.class);
    }

    /** Commits until everything so far, and the rows that follow a rename, are in the log. */
    private void catchUp() throws InterruptedException {
        int marker = ++markers;
        insert("marker", marker);
        source.commitUntil(() -> {
            Replica.Collection reached = live.collections.get(name("marker"));
            boolean isReached = reached != null
                    && reached.documents.values().stream()
                            .anyMatch(document -> document.getInt32("_id").getValue() == marker);
            if (!isReached) return false;
            return live.awaiting().isEmpty() && replayed.awaiting().isEmpty() && openRefills() == 0;
        });
    }

    private long openRefills() {
        return new SchemaOffset(source.offset()).openRefills().size();
    }

    private void sameOnBothSides() {
        for (Replica replica : List.of(live, replayed)) {
            Map<String, Replica.Collection> expected = sourceCollections();
            assertEquals(expected.keySet(), replica.collections.keySet());
            expected.forEach((name, collection) -> {
                Replica.Collection replicated = replica.collections.get(name);
                assertEquals(collection.documents, replicated.documents, name);
                assertEquals(collection.indexes, replicated.indexes, name);
                assertEquals(collection.options, replicated.options, name);
            });
        }
    }

    private Map<String, Replica.Collection> sourceCollections() {
        Map<String, Replica.Collection> collections = new TreeMap<>();
        for (MongoDatabase each : List.of(database, other)) {
            for (BsonDocument listed : each.listCollections(BsonDocument.class)) {
                String name = listed.getString("name").getValue();
                if (name.startsWith("un") || name.startsWith("system.")) continue;
                Replica.Collection collection = new Replica.Collection();
                collection.options = listed.getDocument("options");
                collections.put(each.getName() + "." + name, collection);
                if (listed.getString("type").getValue().equals("view")) continue;
                MongoCollection<RawBsonDocument> documents = each.getCollection(name, RawBsonDocument.class);
                documents
                        .find()
                        .forEach(document -> collection.documents.put(
                                ByteBuffer.wrap(
                                        CanonicalKey.of(document.getByteBuffer().array())),
                                BsonDocument.parse(document.toJson())));
                each.getCollection(name).listIndexes(BsonDocument.class).forEach(index -> {
                    String indexName = index.getString("name").getValue();
                    if (!indexName.equals("_id_")) collection.indexes.put(indexName, index);
                });
            }
        }
        return collections;
    }

    /** What the log has got since a place in it, without the marker. */
    private List<String> kinds(int from) {
        return live.changes.subList(from, live.changes.size()).stream()
                .filter(change -> !change.namespace().endsWith(".marker"))
                .map(change -> (change.isSnapshot() ? "snapshot " : "")
                        + change.kind().text()
                        + (change.isView() ? " view " : " ")
                        + change.namespace().substring(change.namespace().indexOf('.') + 1)
                        + (change.to().isEmpty() || change.kind() == SchemaChange.Kind.COMPLETE
                                ? ""
                                : " " + change.to().substring(change.to().indexOf('.') + 1)))
                .toList();
    }

    @Test
    void everyKindIsInTheLogInOrder() throws InterruptedException {
        source.begin();
        catchUp();
        int from = live.changes.size();
        insert("a", 1);
        run("{create: 'b', validator: {x: {$exists: false}}, validationLevel: 'moderate', validationAction: 'warn'}");
        run("{createIndexes: 'b', indexes: [{key: {a: 1}, name: 'a'}, {key: {b: 1}, name: 'b', sparse: true}]}");
        run("{collMod: 'b', validator: {y: {$exists: false}}, validationLevel: 'strict', validationAction: 'error'}");
        run("{collMod: 'b', index: {name: 'a', hidden: true}}");
        run("{dropIndexes: 'b', index: 'b'}");
        run("{create: 'v', viewOn: 'a', pipeline: [{$match: {x: 1}}]}");
        run("{collMod: 'v', viewOn: 'a', pipeline: [{$match: {x: 2}}]}");
        run("{drop: 'v'}");
        catchUp();
        assertEquals(
                List.of(
                        "create a",
                        "create b",
                        "createIndexes b",
                        "createIndexes b",
                        "collMod b",
                        "collMod b",
                        "dropIndexes b",
                        "create view v",
                        "collMod view v",
                        "drop view v"),
                kinds(from));
        sameOnBothSides();

        from = live.changes.size();
        rename("a", "c", false);
        rename("c", "unselected", false);
        rename("unselected", "d", false);
        rename("d", "b", true);
        catchUp();
        assertEquals(
                List.of("rename a c", "drop c", "replace d", "rename d b", "complete b"), kinds(from), "d is gone");
        sameOnBothSides();

        from = live.changes.size();
        collection("b").aggregate(List.of(BsonDocument.parse("{$out: 'e'}"))).toCollection();
        collection("b").aggregate(List.of(BsonDocument.parse("{$merge: 'f'}"))).toCollection();
        server.onAdmin("{renameCollection: '%s', to: '%s.g'}".formatted(name("e"), other.getName()));
        catchUp();
        assertEquals(
                Set.of("replace e", "create f", "replace g", "drop e", "complete g"),
                Set.copyOf(kinds(from)),
                () -> "" + live.changes);
        sameOnBothSides();

        from = live.changes.size();
        run("{create: 'v', viewOn: 'b', pipeline: []}");
        run("{create: 'w', viewOn: 'b', pipeline: []}");
        run("{drop: 'w'}");
        run("{convertToCapped: 'b', size: 10000}");
        catchUp();
        source.kill();
        source.begin();
        database.drop();
        catchUp();
        assertEquals(
                Set.of("create view v", "create view w", "drop view w", "collMod b", "drop b", "drop f", "drop view v"),
                Set.copyOf(kinds(from)));
        sameOnBothSides();
    }

    private void rename(String from, String to, boolean dropTarget) {
        server.onAdmin(
                "{renameCollection: '%s', to: '%s', dropTarget: %b}".formatted(name(from), name(to), dropTarget));
    }

    @Test
    void aCollectionIsCreatedBeforeTheDocumentsOfItsTransaction() throws InterruptedException {
        source.begin();
        catchUp();
        int from = live.changes.size();
        try (ClientSession session = server.session()) {
            session.startTransaction();
            for (String name : List.of("a", "b")) {
                database.createCollection(session, name);
                collection(name).createIndex(session, BsonDocument.parse("{x: 1}"));
                collection(name).insertOne(session, BsonDocument.parse("{_id: 1}"));
            }
            session.commitTransaction();
        } catch (MongoException error) {
            throw new AssertionError(error);
        }
        catchUp();
        assertEquals(Set.of("create a", "create b", "createIndexes a", "createIndexes b"), Set.copyOf(kinds(from)));
        sameOnBothSides();
    }

    @Test
    void whatExistsIsDescribedBeforeItsRowsAndWithIndexesWhenTheStreamBegins() throws InterruptedException {
        insert("a", 1);
        run("{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'a'}]}");
        run("{create: 'v', viewOn: 'a', pipeline: []}");
        insert("unselected", 1);
        source.begin();
        catchUp();
        assertEquals(
                List.of("snapshot create a", "snapshot create a", "snapshot create view v", "snapshot create view v"),
                kinds(0).stream().sorted().toList());
        assertEquals(
                List.of(0, 1),
                live.changes.stream()
                        .filter(change -> change.namespace().equals(name("a")))
                        .map(change -> change.indexes().size())
                        .toList());
        sameOnBothSides();
        source.kill();
        source.begin();
        catchUp();
        assertEquals(4, kinds(0).size(), "once");
    }

    @Test
    void theStreamBeginsBehindWhatWasDroppedBeforeItWasDescribed() throws InterruptedException {
        insert("a", 1);
        insert("b", 1);
        source.begin();
        collection("a").updateOne(BsonDocument.parse("{_id: 1}"), BsonDocument.parse("{$set: {u: 1}}"));
        run("{drop: 'a'}");
        rename("b", "c", false);
        run("{create: 'd', validator: {x: 1}, validationLevel: 'strict', validationAction: 'error'}");
        run("{collMod: 'd', validator: {x: 2}, validationLevel: 'strict', validationAction: 'error'}");
        catchUp();
        catchUp(); // the first marker may be a row, which the copy reads before others
        assertEquals(Set.of("snapshot create c", "snapshot create d"), Set.copyOf(kinds(0)), () -> "" + live.changes);
        sameOnBothSides();
    }

    @Test
    void aPipelineThatRunsBeginsWhereItsStreamIs() throws InterruptedException {
        source.configuration.put("towpath.ddl", "false");
        live.createsImplicitly = true;
        replayed.createsImplicitly = true;
        insert("a", 1);
        insert("b", 1);
        run("{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'a'}]}");
        source.begin();
        catchUpPlainly();
        source.stop();
        live.createsImplicitly = false;
        replayed.createsImplicitly = false;

        // described as it was at the stream's position, whatever has happened since
        run("{collMod: 'a', validator: {y: 1}, validationLevel: 'strict', validationAction: 'error'}");
        run("{dropIndexes: 'a', index: 'a'}");
        run("{createIndexes: 'a', indexes: [{key: {b: 1}, name: 'a'}]}");
        rename("a", "c", false);
        run("{drop: 'b'}");
        insert("d", 1);
        source.configuration.put("towpath.ddl", "true");
        source.begin();
        catchUp();
        assertEquals(
                List.of(
                        "snapshot create a",
                        "collMod a",
                        "dropIndexes a",
                        "createIndexes a",
                        "rename a c",
                        "drop b",
                        "create d",
                        "complete c"),
                kinds(0));
        SchemaChange described = live.changes.stream()
                .filter(change -> change.namespace().equals(name("a")))
                .findFirst()
                .orElseThrow();
        assertEquals(new BsonDocument(), described.options());
        assertEquals(BsonDocument.parse("{a: 1}"), described.indexes().get(0).getDocument("key"));
        sameOnBothSides();
    }

    private void catchUpPlainly() throws InterruptedException {
        insert("marker", ++markers);
        source.commitUntil(() -> live.collections.containsKey(name("marker"))
                && live.collections.get(name("marker")).documents.size() == markers);
    }

    @Test
    void aWriterAndChangesAtRandomWithKillsGiveTheSameOnBothSides() throws Exception {
        source.begin();
        catchUp();
        randomly(new Random(Fuzz.seed()), Fuzz.times(6), true);
    }

    @Test
    void whatChangesWhileTheCopyRunsIsTheSameOnBothSides() throws Exception {
        for (String name : List.of("a", "b", "c")) {
            List<BsonDocument> documents = new ArrayList<>();
            for (int id = 0; id < 2_000; id++) documents.add(BsonDocument.parse("{_id: %d, n: 0}".formatted(id)));
            collection(name).insertMany(documents);
            run("{createIndexes: '%s', indexes: [{key: {n: 1}, name: 'n'}]}", name);
        }
        source.configuration.put("towpath.copy.range.bytes", "4096");
        source.configuration.put("towpath.copy.documents.per.second", "1000");
        randomly(new Random(Fuzz.seed()), Fuzz.times(6), true);
    }

    private void randomly(Random random, int seconds, boolean kills) throws Exception {
        List<Thread> threads = new ArrayList<>();
        threads.add(thread(random.nextLong(), this::write));
        threads.add(thread(random.nextLong(), this::write));
        threads.add(thread(random.nextLong(), this::change));
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        boolean lives = false;
        while (System.nanoTime() < end) {
            source.stop();
            source.begin();
            long stop = System.nanoTime() + (kills ? random.nextInt(4_000) : 60_000) * 1_000_000L;
            while (System.nanoTime() < Math.min(stop, end)) source.commit();
            if (kills) source.kill();
            lives = !kills;
        }
        isDone.set(true);
        for (Thread thread : threads) thread.join();
        assertEquals(List.of(), failures);
        if (!lives) source.begin();
        catchUp();
        assertFalse(live.changes.isEmpty());
        sameOnBothSides();
    }

    private interface Act {
        void act(Random random);
    }

    private Thread thread(long seed, Act act) {
        Thread thread = new Thread(() -> {
            Random random = new Random(seed);
            while (!isDone.get()) {
                try {
                    act.act(random);
                } catch (MongoException refused) {
                    // another thread was faster
                } catch (Throwable error) {
                    failures.add(error);
                    return;
                }
            }
        });
        thread.start();
        return thread;
    }

    private static final List<String> NAMES = List.of("a", "b", "c");

    private static String any(Random random) {
        return NAMES.get(random.nextInt(NAMES.size()));
    }

    private void write(Random random) {
        MongoCollection<BsonDocument> collection = collection(any(random));
        BsonDocument id = BsonDocument.parse("{_id: %d}".formatted(random.nextInt(200)));
        BsonDocument document = id.clone().append("n", new BsonInt32(random.nextInt(1_000)));
        switch (random.nextInt(4)) {
            case 0 -> collection.insertOne(document);
            case 1 -> collection.replaceOne(id, document);
            case 2 -> collection.updateOne(id, BsonDocument.parse("{$set: {u: %d}}".formatted(random.nextInt())));
            default -> collection.deleteOne(id);
        }
    }

    private void change(Random random) {
        String name = any(random);
        String to = any(random);
        sleep(random.nextInt(100));
        switch (random.nextInt(16)) {
            case 0, 1 -> {
                if (!name.equals(to)) rename(name, to, true);
            }
            case 2 -> run("{drop: '%s'}", name);
            case 3 -> rename(name, "unselected", true);
            case 4 -> rename("unselected", name, true);
            case 5 -> collection(name)
                    .aggregate(List.of(BsonDocument.parse("{$out: '%s'}".formatted(to))))
                    .toCollection();
            case 6 -> run("{dropIndexes: '%s', index: 'n'}", name);
            case 7 -> run("{dropIndexes: '%s', index: 'u'}", name);
            case 8 -> run(
                    "{collMod: '%s', validator: {z: {$ne: %d}}, validationLevel: 'strict', validationAction: 'warn'}",
                    name, random.nextInt());
            case 9 -> run(
                    "{create: '%s', validator: {z: %d}, validationLevel: 'moderate', validationAction: 'warn'}",
                    name, random.nextInt());
            case 10 -> run("{create: 'view%s', viewOn: '%s', pipeline: []}", name, name);
            case 11 -> run("{drop: 'view%s'}", name);
            case 12 -> run("{collMod: 'view%s', viewOn: '%s', pipeline: []}", name, to);
            case 13 -> run(
                    "{collMod: '%s', index: {name: '%s', hidden: %b}}",
                    name, random.nextBoolean() ? "n" : "u", random.nextBoolean());
            default -> run(
                    "{createIndexes: '%s', indexes: [{key: {%s: 1}, name: '%2$s', sparse: %b}]}",
                    name, random.nextBoolean() ? "n" : "u", random.nextBoolean());
        }
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    @Tag("nightly")
    void aCollectionThatIsReplacedInALoopHoldsUpNothing() throws Exception {
        for (int id = 0; id < 100; id++) insert("a", id);
        source.begin();
        catchUp();
        Thread loop = thread(1, random -> collection("a")
                .aggregate(List.of(BsonDocument.parse("{$out: 'b'}")))
                .toCollection());
        source.commitUntil(() -> live.changes.stream()
                        .filter(change -> change.kind() == SchemaChange.Kind.REPLACE)
                        .count()
                > (Fuzz.isNight() ? 5 : 1));
        rename("a", "c", false);
        insert("a", 1);
        // the rows of c are read although b is never the same for long
        source.commitUntil(() -> live.changes.stream()
                .anyMatch(change -> change.kind() == SchemaChange.Kind.COMPLETE
                        && change.namespace().equals(name("c"))));
        isDone.set(true);
        loop.join();
        catchUp();
        sameOnBothSides();
        assertTrue(live.collections.keySet().stream().noneMatch(name -> name.contains("tmp")));
    }

    @Test
    void updatesOfAReplacedCollectionThatIsGoneBeforeItIsReadMayHaveNoDocument() throws InterruptedException {
        source.begin();
        catchUp();
        for (boolean isRenamed : List.of(false, true)) {
            int from = live.changes.size();
            insert("unselected", 1);
            rename("unselected", "a", false);
            source.commitUntil(() -> kinds(from).contains("replace a"));
            collection("a").updateOne(BsonDocument.parse("{_id: 1}"), BsonDocument.parse("{$set: {u: 1}}"));
            if (isRenamed) rename("a", "b", false);
            else run("{drop: 'a'}");
            catchUp();
            sameOnBothSides();
        }
    }

    @Test
    void namespacesThatAreAddedAreDescribedBeforeTheirRows() throws InterruptedException {
        insert("unselected", 1);
        run("{createIndexes: 'unselected', indexes: [{key: {a: 1}, name: 'a'}]}");
        source.begin();
        catchUp();
        int from = live.changes.size();
        source.stop();
        source.configuration.put("collection.include.list", database.getName() + "\\.(?!system\\.).+");
        run("{createIndexes: 'unselected', indexes: [{key: {b: 1}, name: 'b'}]}");
        source.begin();
        catchUp();
        Replica.Collection added = live.collections.get(name("unselected"));
        source.commitUntil(() -> added.documents.size() == 1);
        assertEquals(Set.of("a", "b"), added.indexes.keySet());
        assertEquals(List.of("snapshot create unselected", "createIndexes unselected"), kinds(from));
    }

    @Test
    void aCollationOfACollectionThatStreamsIsNoProblem() throws InterruptedException {
        source.configuration.put("towpath.copy.range.bytes", "4096");
        source.begin();
        catchUp();
        run("{create: 'folded', collation: {locale: 'en', strength: 2}}");
        // more than one page; by bytes all of A to Z come before all of a to z
        List<BsonDocument> documents = new ArrayList<>();
        for (int number = 0; number < 4_500; number++) {
            char first = (char) ((number % 2 == 0 ? 'a' : 'A') + number % 26);
            documents.add(new BsonDocument("_id", new BsonString(first + "-" + number)));
        }
        collection("folded").insertMany(documents);
        rename("folded", "renamed", false);
        catchUp();
        sameOnBothSides();
        source.stop();
        source.configuration.put("towpath.resnapshot", "again");
        List<Map<ByteBuffer, BsonDocument>> lost = Stream.of(live, replayed)
                .map(replica -> replica.collections.get(name("renamed")).documents)
                .toList();
        lost.forEach(Map::clear);
        source.begin();
        source.commitUntil(() -> lost.stream().allMatch(replica -> replica.size() == documents.size()));
        sameOnBothSides();
    }

    @Test
    void errorsAreWaitedOut() throws InterruptedException {
        server.requireTestCommands();
        source.begin();
        catchUp();
        insert("a", 1);
        server.fail("{times: 5}", "failCommands: ['listCollections', 'listIndexes'], errorCode: 11602");
        rename("a", "b", false);
        run("{createIndexes: 'b', indexes: [{key: {a: 1}, name: 'a'}]}");
        catchUp();
        sameOnBothSides();
    }

    /** What is read before the change is in the log: that it is not selected after the change makes a delete. */
    @Test
    void aChangeWaitsUntilTheSelectedDocumentsBeforeItAreAllRead() throws InterruptedException {
        server.requireTestCommands();
        String rules = "[{\"collections\": \"%s.x.\", \"only\": {\"in\": true}}]".formatted(database.getName());
        source.configuration.put("towpath.rules", rules);
        List<String> names = new ArrayList<>(Set.of(name("x0"), name("x1")));
        names.sort(Comparator.comparing(new ArrayList<>(new HashSet<>(names))::indexOf)); // as they are read
        String left = names.get(0).split("\\.")[1];
        String stays = names.get(1).split("\\.")[1];
        insert(left, 1);
        insert(stays, 1);
        source.begin();
        catchUp();
        source.stop();
        select(left, true);
        select(stays, true);
        run("{create: 'y'}");
        select(left, false);
        source.configuration.put("poll.interval.ms", "500"); // all of it in one batch
        source.begin();
        // the driver asks twice
        server.fail(
                "{times: 2}", "failCommands: ['find'], namespace: '%s', closeConnection: true".formatted(name(stays)));
        catchUp();
        assertEquals(Map.of(), live.collections.get(name(left)).documents);
        assertEquals(1, live.collections.get(name(stays)).documents.size());
    }

    private static byte[] key(int id) {
        return CanonicalKey.of(BsonBytes.of(new BsonDocument("_id", new BsonInt32(id))));
    }

    /** Read as of now, in place of an event that is too large: it has everything up to now. */
    private void readInPlaceOfAnEvent(String collection) {
        try (SourceCluster cluster = Sources.connected(source.configuration)) {
            Ledger ledger = new Ledger(new Partitions("p"), source.context);
            ledger.addDocument(name(collection), key(1), cluster.now(), true);
            source.context.store(List.of(ledger.rootRecord()));
        }
    }

    /** Otherwise it would replace what a user has kept of a collection of its name. */
    @Test
    void aCollectionThatIsCreatedReplacesNothingWhileADocumentOfAnotherIsAhead() throws InterruptedException {
        source.begin();
        insert("a", 1);
        catchUp();
        source.stop();
        int from = live.changes.size();
        run("{create: 'b', capped: true, size: 4096}");
        readInPlaceOfAnEvent("a");
        source.begin();
        catchUp();
        assertEquals(List.of("create b"), kinds(from));
        sameOnBothSides();
    }

    /** The document was read once it was gone from the collection that has the name by then. */
    @Test
    void aDeleteInACollectionThatFollowsTheOneOfADocumentInPlaceOfAnEventIsInTheLog() throws InterruptedException {
        source.begin();
        insert("a", 1);
        insert("b", 1);
        catchUp();
        source.stop();
        int from = live.changes.size();
        rename("a", "b", true);
        collection("b").deleteOne(Filters.eq("_id", 1));
        readInPlaceOfAnEvent("b");
        source.begin();
        catchUp();
        assertEquals(List.of("rename a b", "complete b"), kinds(from));
        sameOnBothSides();
    }

    /** No rows of it would follow. */
    @Test
    void aCappedCollectionOfWhichADocumentIsPendingKeepsTheOthersInARename() throws InterruptedException {
        source.begin();
        run("{create: 'a', capped: true, size: 4096}");
        insert("a", 1);
        insert("a", 2);
        catchUp();
        source.stop();
        int from = live.changes.size();
        Ledger ledger = new Ledger(new Partitions("p"), source.context);
        ledger.addPending(name("a"), key(1));
        source.context.store(ledger.newPending());
        rename("a", "b", false);
        source.begin();
        source.commitUntil(() -> !kinds(from).isEmpty());
        assertEquals(List.of("rename a b"), kinds(from));
        assertEquals(2, live.collections.get(name("b")).documents.size());
    }

    /** No server reads it as of a known time. */
    @Test
    void theCopyOfACappedCollectionEnds() throws InterruptedException {
        source.begin();
        insert("a", 1);
        catchUp();
        source.stop();
        int from = live.changes.size();
        rename("a", "b", false);
        run("{convertToCapped: 'b', size: 4096}");
        source.begin();
        source.commitUntil(() -> kinds(from).size() == 2 && openRefills() == 0);
        assertEquals(List.of("rename a b", "collMod b"), kinds(from));
        assertTrue(new SchemaOffset(source.offset()).problem().startsWith(name("b") + " is capped"));
        Ledger ledger = new Ledger(new Partitions("p"), source.context);
        assertFalse(ledger.rows().copies().containsKey(name("b")));
    }

    private void select(String collection, boolean isSelected) {
        collection(collection).updateOne(Filters.eq("_id", 1), Updates.set("in", isSelected));
    }

    @Test
    void whatIsOffIsForgottenAndDescribedAgain() throws InterruptedException {
        source.begin();
        insert("a", 1);
        catchUp();
        source.stop();
        source.configuration.put("towpath.ddl", "false");
        source.begin();
        source.commitUntil(() -> source.offset().get("on").equals(false));
        source.stop();
        run("{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'a'}]}");
        source.configuration.put("towpath.ddl", "true");
        int from = live.changes.size();
        source.begin();
        catchUp();
        assertTrue(kinds(from).contains("snapshot create a"));
        sameOnBothSides();
        assertEquals(new TreeSet<>(), new SchemaOffset(source.offset()).views());
        assertEquals(
                new HashMap<>(Map.of("towpath", "p", "schema", true)), new HashMap<>(new Partitions("p").schema()));
    }
}
