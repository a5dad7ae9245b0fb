package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.IndexOptions;
import io.towpath.net.ServerError;
import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.sink.ddl.Barrier;
import io.towpath.support.Fuzz;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonArray;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Schema changes on real servers: tasks that share the log's partitions make them in its order, whatever happens to the tasks. */
@Timeout(120)
class SchemaChangesServerTest extends DestinationTest {
    private static final String DESTINATION = "towpath_ddl_destination";
    private static final int PARTITIONS = 4;
    private static final List<String> COLLECTIONS = List.of("a", "b", "c", "v");
    private static final String HANG = "{configureFailPoint: 'hangAfterStartingIndexBuild', mode: '%s'}";
    private static final String[] DROPS = {SinkSettings.DDL_DROP, "apply"};

    private SchemaSource source;
    private MongoDatabase destination;
    private SchemaSinks sinks;

    @BeforeEach
    void begin() {
        begin(PARTITIONS);
    }

    private void begin(int partitions) {
        server.dropDatabase(Destination.DATABASE);
        source = new SchemaSource(server.client(), "towpath_ddl_source", DESTINATION, partitions);
        destination = server.client().getDatabase(DESTINATION);
        destination.drop();
    }

    @AfterEach
    void end() {
        server.fail("off", "");
        server.onAdmin(HANG.formatted("off"));
        server.onAdmin("{setParameter: 1, transactionLifetimeLimitSeconds: 60}");
        if (sinks != null) sinks.close();
        source.database.drop();
        destination.drop();
    }

    private void start(String... settings) {
        sinks = new SchemaSinks(collection, source, COLLECTIONS, 2, settings);
    }

    // What is seen

    private MongoCollection<RawBsonDocument> at(String collection) {
        return destination.getCollection(collection, RawBsonDocument.class);
    }

    private static BsonDocument state(String id) {
        return server.client()
                .getDatabase(Destination.DATABASE)
                .getCollection("schema_changes", BsonDocument.class)
                .find(new BsonDocument("_id.id", new BsonString(id)))
                .first();
    }

    private boolean is(String state) {
        return isIn(source.lastId, state);
    }

    private static boolean isIn(String id, String state) {
        BsonDocument stored = state(id);
        return stored != null && stored.getString("state").getValue().equals(state);
    }

    private static void decide(String id, String decision) {
        server.client()
                .getDatabase(Destination.DATABASE)
                .getCollection("schema_changes")
                .updateOne(
                        new BsonDocument("_id.id", new BsonString(id)),
                        OffsetDocument.set(new BsonDocument("decision", new BsonString(decision))));
    }

    private void until(String what, BooleanSupplier isSo) {
        long end = System.nanoTime() + Duration.ofMinutes(2).toNanos();
        while (!isSo.getAsBoolean()) {
            assertTrue(
                    System.nanoTime() < end,
                    () -> what + ": " + sinks.members + "\n" + unfinished()
                            + server.offsets().find().into(new ArrayList<>()));
            sinks.iterate();
            assertOneLifeEach();
        }
    }

    private static List<BsonDocument> unfinished() {
        return states().stream()
                .filter(stored -> !stored.getString("state").getValue().equals("done"))
                .toList();
    }

    private static List<BsonDocument> states() {
        return server.client()
                .getDatabase(Destination.DATABASE)
                .getCollection("schema_changes", BsonDocument.class)
                .find()
                .into(new ArrayList<>());
    }

    private void drain() {
        until("the log is applied", () -> sinks.isDone(server));
    }

    /** At no time has a collection documents of two that had its name one after the other. */
    private void assertOneLifeEach() {
        for (String collection : COLLECTIONS.subList(0, 3)) {
            Set<Object> lives = new HashSet<>();
            try {
                at(collection).distinct("life", Integer.class).forEach(lives::add);
            } catch (MongoCommandException error) {
                // the sink drops or renames the collection in the meantime
                if (!ServerError.QueryPlanKilled.is(error)) throw error;
                continue;
            }
            assertTrue(lives.size() <= 1, () -> collection + " has documents of " + lives);
        }
    }

    private void assertSame() {
        Map<String, BsonDocument> expected = listed(source.database);
        Map<String, BsonDocument> actual = listed(destination);
        assertEquals(expected, actual);
        for (String name : expected.keySet()) {
            List<BsonDocument> documents = TestTask.stored(source.database.getCollection(name, RawBsonDocument.class));
            assertEquals(documents, TestTask.stored(at(name)), name);
        }
    }

    /** Collections and views with their options and indexes, in the relaxed form. */
    private static Map<String, BsonDocument> listed(MongoDatabase database) {
        Map<String, BsonDocument> listed = new TreeMap<>();
        for (BsonDocument entry : database.listCollections(BsonDocument.class)) {
            String name = entry.getString("name").getValue();
            if (name.startsWith("system.")) continue;
            BsonDocument description = entry.getDocument("options").clone();
            List.of("capped", "size", "max", "validationAction", "expireAfterSeconds")
                    .forEach(description::remove);
            if (entry.getString("type").getValue().equals("collection"))
                for (BsonDocument index : database.getCollection(name).listIndexes(BsonDocument.class)) {
                    List.of("unique", "expireAfterSeconds", "prepareUnique").forEach(index::remove);
                    description.append("index " + index.getString("name").getValue(), index);
                }
            listed.put(name, description);
        }
        return listed;
    }

    // Each kind

    @Test
    void eachKindIsMadeInTheOrderOfTheLog() {
        start(DROPS);
        source.create("a", "{validator: {x: {$type: 'int'}}}");
        for (int id = 0; id < 20; id++) source.insert("a", id);
        source.createIndex("a", "{key: {x: 1}, name: 'x', unique: true}");
        source.createIndex("a", "{key: {t: 1}, name: 't', expireAfterSeconds: 5000, collation: {locale: 'simple'}}");
        source.createIndex(
                "a", "{key: {'$**': 'text'}, name: 'text', default_language: 'german', collation: {locale: 'simple'}}");
        source.modify("a", "{index: {name: 't', hidden: true, expireAfterSeconds: 700}}");
        source.modify("a", "{validator: {x: {$exists: true}}, validationLevel: 'moderate'}");
        source.createView("v", "{viewOn: 'a', pipeline: [{$match: {x: {$gt: 3}}}]}");
        for (int id = 20; id < 40; id++) source.insert("a", id);
        source.set("a", 7, -7);
        source.delete("a", 8);
        drain();
        assertSame();
        assertEquals(
                "warn",
                destination
                        .listCollections(BsonDocument.class)
                        .filter(new BsonDocument("name", new BsonString("a")))
                        .first()
                        .getDocument("options")
                        .getString("validationAction")
                        .getValue());

        source.dropIndex("a", "x");
        source.rename("a", "b");
        source.insert("b", 100);
        source.set("b", 9, -9);
        source.modify("v", "{viewOn: 'b', pipeline: [{$match: {x: {$gt: 5}}}]}");
        source.create("c", "{capped: true, size: 100000, max: 50}");
        source.insert("c", 1);
        source.replace("b", 5);
        source.insert("b", 50);
        source.createIndex("b", "{key: {y: -1}, name: 'y', sparse: true}");
        source.dropView("v");
        drain();
        assertSame();

        source.drop("c");
        source.insert("c", 2);
        source.rename("c", "b");
        source.replace("a", 3);
        source.drop("b");
        drain();
        assertSame();
    }

    @Test
    void aClusteredCollectionAndOneWithImagesAreMade() {
        start();
        source.create(
                "a", "{clusteredIndex: {key: {_id: 1}, unique: true}, changeStreamPreAndPostImages: {enabled: true}}");
        source.insert("a", 1);
        drain();
        assertSame();
    }

    @Test
    void inOnePartitionACollectionKeepsItsCollation() {
        begin(1);
        start();
        source.create("a", "{collation: {locale: 'en', strength: 2}}");
        source.createIndex("a", "{key: {x: 1}, name: 'x', collation: {locale: 'simple'}}");
        source.insert("a", "A");
        source.delete("a", "A");
        source.insert("a", "a"); // the same _id by the collation
        drain();
        assertEquals(1, at("a").countDocuments());
        assertSame();
    }

    @Test
    void whatIsThereAlreadyIsNotMadeAgain() {
        start();
        destination.createCollection("a");
        destination.getCollection("a").createIndex(BsonDocument.parse("{x: 1}"));
        source.run("{create: 'a'}");
        source.run("{createIndexes: 'a', indexes: [{key: {x: 1}, name: 'x_1', unique: true}]}");
        source.describe("a");
        drain();
        assertTrue(is("done"));
        source.barrier(Kind.CREATE, "a", "", false, new BsonDocument(), List.of());
        drain();
        assertTrue(is("done"));
        assertSame();
    }

    @Test
    void aDescriptionThatTheDestinationRefusesHoldsNothingUp() {
        start();
        destination.createCollection(
                "a",
                new CreateCollectionOptions()
                        .collation(Collation.builder().locale("de").build()));
        source.run("{create: 'a'}");
        source.describe("a");
        source.snapshot("b", new BsonDocument(), List.of(BsonDocument.parse("{key: {x: 'nonsense'}, name: 'x'}")));
        drain();
        assertTrue(is("skipped"));
        String reason = state(source.lastId).getString("reason").getValue();
        assertTrue(reason.contains("nonsense") && reason.contains("the command was: db.getSiblingDB("), reason);
    }

    // Decisions

    @Test
    void aDropIsHeldUntilItIsDecidedAndOthersFlow() {
        start();
        for (int id = 0; id < 20; id++) source.insert("a", id);
        source.drop("a");
        String drop = source.lastId;
        source.insert("a", 1);
        until("held", () -> isIn(drop, "held"));
        assertEquals(20, at("a").countDocuments());
        for (int id = 0; id < 20; id++) source.insert("b", id);
        until("others flow", () -> at("b").countDocuments() == 20);
        assertEquals(20, at("a").countDocuments());
        assertTrue(state(drop).getString("reason").getValue().contains("20 documents"));
        decide(drop, "apply");
        drain();
        assertSame();
    }

    @Test
    void aDropThatIsSkippedLeavesWhatIsThere() {
        start();
        source.insert("a", 1);
        source.insert("a", 2);
        source.drop("a");
        String drop = source.lastId;
        until("held", () -> isIn(drop, "held"));
        decide(drop, "skip");
        drain();
        assertTrue(isIn(drop, "skipped"));
        assertEquals(2, at("a").countDocuments());
    }

    @Test
    void aDropOfWhatIsNotThereNeedsNoDecision() {
        start();
        source.insert("a", 1);
        drain();
        at("a").drop();
        source.drop("a");
        drain();
        assertTrue(is("done"));
    }

    @Test
    void aReplayDropsWithoutADecisionAndFillsTheNewNameFromTheLog() {
        start(SinkSettings.DDL_REPLAY, "true");
        for (int id = 0; id < 8; id++) source.insert("a", id);
        drain();
        at("a").insertOne(new RawBsonDocument(
                BsonBytes.of(BsonDocument.parse("{_id: 99, life: 1}")))); // deleted, and the cleaner took that
        source.rename("a", "b");
        source.createIndex("b", "{key: {x: 1}, name: 'x'}");
        drain();
        source.drop("b");
        source.insert("b", 3);
        drain();
        assertSame();
    }

    @Test
    void aReplayWithEndsStopsBeforeTheNextSchemaChangeBehindThem() {
        for (int id = 0; id < 8; id++) source.insert("a", id);
        for (int id = 0; id < 8; id++) source.insert("b", id);
        sinks = new SchemaSinks(
                collection,
                source,
                List.of("a", "b"),
                2,
                SinkSettings.DDL_REPLAY,
                "true",
                LogSettings.DDL_ENDS,
                ends(partition -> end(partition)));
        source.insert("a", 100);
        source.rename("a", "c");
        String rename = newest(Kind.RENAME);
        source.log.keySet().removeIf(partition -> partition.topic().equals(source.topic("c")));
        source.insert("b", 100);
        until(
                "all stand or are applied",
                () -> at("b").countDocuments() == 9
                        && server.offsets().countDocuments(new BsonDocument("barrier", new BsonString(rename)))
                                == PARTITIONS);
        for (int more = 0; more < 100; more++) sinks.iterate();
        assertEquals(9, at("a").countDocuments());
        assertNull(state(rename));
    }

    @Test
    void aChangeThatIsBeforeTheEndInOnePartitionIsMade() {
        for (int id = 0; id < 8; id++) source.insert("a", id);
        Map<TopicPartition, Long> before = new HashMap<>();
        source.log.keySet().forEach(partition -> before.put(partition, end(partition)));
        source.drop("a");
        String drop = source.lastId;
        TopicPartition later = source.partitions("a").get(2);
        sinks = new SchemaSinks(
                collection,
                source,
                COLLECTIONS,
                PARTITIONS,
                SinkSettings.DDL_REPLAY,
                "true",
                LogSettings.DDL_ENDS,
                ends(partition -> partition.equals(later) ? end(partition) : before.get(partition)));
        until("made", () -> isIn(drop, "done"));
        assertEquals(0, at("a").countDocuments());
        until(
                "it continues",
                () -> server.offsets()
                                .find(OffsetDocument.filter(TestTask.PIPELINE, later))
                                .first()
                                .getNumber("offset")
                                .longValue()
                        >= end(later));
    }

    private String ends(ToLongFunction<TopicPartition> end) {
        BsonDocument ends = new BsonDocument();
        for (TopicPartition partition : source.log.keySet()) {
            if (!ends.containsKey(partition.topic())) ends.put(partition.topic(), new BsonArray());
            ends.getArray(partition.topic()).add(new BsonInt64(end.applyAsLong(partition)));
        }
        return ends.toJson();
    }

    private long end(TopicPartition partition) {
        List<SinkRecord> records = source.log.get(partition);
        return records.get(records.size() - 1).kafkaOffset() + 1;
    }

    @Test
    void aRefusedChangeIsTriedAgainAndGoesOnOnceItIsMended() {
        start();
        source.create("a", "{}");
        drain();
        destination.getCollection("a").createIndex(BsonDocument.parse("{z: 1}"), new IndexOptions().name("x"));
        source.createIndex("a", "{key: {x: 1}, name: 'x'}");
        String index = source.lastId;
        source.insert("a", 1);
        until("refused", () -> isIn(index, "refused"));
        String reason = state(index).getString("reason").getValue();
        assertTrue(reason.contains("IndexKeySpecsConflict") && reason.contains("\"dropIndexes\": \"a\""), reason);
        BsonValue first = state(index).get("refused");
        decide(index, "apply");
        until(
                "refused again",
                () -> is("refused") && !state(index).get("refused").equals(first));
        source.insert("b", 1);
        until("others flow", () -> at("b").countDocuments() == 1);
        assertEquals(0, at("a").countDocuments());
        destination.getCollection("a").dropIndex("x");
        decide(index, "apply"); // changes nothing: it is decided
        drain();
        assertSame();
        Duration decided = Duration.ofMillis(state(index).getDateTime("ended").getValue()
                - first.asDateTime().getValue());
        assertTrue(decided.toSeconds() < 20, () -> "not tried again soon: " + decided);
    }

    @Test
    void aCollationOfWhichPartitionsDoNotKeepTheOrderIsRefused() {
        start();
        source.create("a", "{collation: {locale: 'en', strength: 2}, validator: {x: {$gte: 0}}}");
        String create = source.lastId;
        source.insert("a", 1);
        until("refused", () -> isIn(create, "refused"));
        String reason = state(create).getString("reason").getValue();
        assertTrue(reason.contains("TWP-COLLATION"), reason);
        destination.runCommand(BsonDocument.parse(
                reason.substring(reason.indexOf("runCommand(") + "runCommand(".length(), reason.length() - 1)));
        decide(create, "apply");
        drain();
        assertTrue(isIn(create, "done"));
        BsonDocument made = listed(destination).get("a");
        assertEquals(BsonDocument.parse("{x: {$gte: 0}}"), made.get("validator"));
        assertFalse(made.containsKey("collation"));
        source.rename("a", "b");
        source.replace("b", 3);
        drain();
        assertEquals(3, at("b").countDocuments());
    }

    @Test
    void aRefusedChangeThatIsTriedAgainRunsAndIsNotSkippedMeanwhile() throws Exception {
        server.requireTestCommands();
        start();
        source.insert("a", 1);
        drain();
        destination.getCollection("a").createIndex(BsonDocument.parse("{z: 1}"), new IndexOptions().name("x"));
        source.createIndex("a", "{key: {x: 1}, name: 'x'}", false);
        String index = source.lastId;
        until("refused", () -> isIn(index, "refused"));
        destination.getCollection("a").dropIndex("x");
        server.onAdmin(HANG.formatted("alwaysOn"));
        decide(index, "apply");
        until("running", () -> isIn(index, "running"));
        assertTrue(state(index).getString("reason").getValue().contains("IndexKeySpecsConflict"));
        assertTrue(state(index).isDateTime("refused"));
        assertTrue(sinks.refused() > 0);
        decide(index, "skip");
        server.onAdmin(HANG.formatted("off"));
        source.run("{createIndexes: 'a', indexes: [{key: {x: 1}, name: 'x'}]}");
        drain();
        assertTrue(isIn(index, "done"));
        assertFalse(state(index).containsKey("reason") || state(index).containsKey("refused"));
        assertSame();
    }

    @Test
    void aCollectionThatExistsWithOtherOptionsIsRefusedAndMayBeSkipped() {
        start();
        destination.createCollection(
                "a",
                new CreateCollectionOptions()
                        .collation(Collation.builder().locale("fr").build()));
        source.create("a", "{}");
        String create = source.lastId;
        source.insert("a", 1);
        until("refused", () -> isIn(create, "refused"));
        String reason = state(create).getString("reason").getValue();
        assertTrue(
                reason.contains("collation")
                        && reason.contains(
                                "db.getSiblingDB(\"%s\").runCommand({\"drop\": \"a\"})".formatted(DESTINATION)),
                reason);
        decide(create, "skip");
        drain();
        assertTrue(isIn(create, "skipped"));
        assertEquals(1, at("a").countDocuments());
    }

    @Test
    void aTimeSeriesCollectionIsRefused() {
        start();
        source.barrier(
                Kind.CREATE,
                "v",
                "",
                true,
                BsonDocument.parse("{viewOn: 'system.buckets.v', pipeline: []}"),
                List.of());
        until("refused", () -> is("refused"));
        assertTrue(state(source.lastId).getString("reason").getValue().contains("time series"));
    }

    @Test
    void whatLastsIsTriedForEverAndShown() {
        server.requireTestCommands();
        start();
        server.fail("alwaysOn", "appName: 'sink', failCommands: ['create'], errorCode: 371");
        source.create("a", "{validator: {x: 1}}");
        String create = source.lastId;
        until(
                "running",
                () -> isIn(create, "running")
                        && state(create)
                                .getString("reason", new BsonString(""))
                                .getValue()
                                .contains("code 371"));
        server.fail("off", "");
        drain();
        assertSame();
        assertFalse(state(create).containsKey("reason"));
    }

    @Test
    void aDestinationThatNeverIsAsItWasPlannedForIsARefusal() {
        server.requireTestCommands();
        start();
        source.insert("a", 1);
        server.fail("alwaysOn", "appName: 'sink', failCommands: ['renameCollection'], errorCode: 48");
        source.rename("a", "b");
        String rename = newest(Kind.RENAME);
        until("refused", () -> isIn(rename, "refused"));
        assertTrue(state(rename).getString("reason").getValue().contains("NamespaceExists"));
        server.fail("off", "");
        decide(rename, "apply");
        drain();
        assertSame();
    }

    @Test
    void aChangeThatTheUserMayNotMakeIsRefusedUntilItMay() {
        server.requireTestCommands();
        start();
        for (String command : List.of("create", "listCollections")) {
            String collection = command.equals("create") ? "a" : "b";
            server.fail("alwaysOn", "appName: 'sink', failCommands: ['%s'], errorCode: 13".formatted(command));
            source.run("{create: '%s'}".formatted(collection));
            source.describe(collection);
            String create = source.lastId;
            until(command, () -> isIn(create, "refused"));
            String reason = state(create).getString("reason").getValue();
            assertTrue(reason.contains("Unauthorized") && reason.contains("dbAdmin on " + DESTINATION), reason);
            server.fail("off", "");
            decide(create, "apply"); // as it would be automatically after 30 s
            drain();
            assertTrue(isIn(create, "done"));
        }
        assertSame();
    }

    // Other topics

    @Test
    void othersFlowWhileAnIndexIsBuilt() {
        server.requireTestCommands();
        start();
        source.insert("a", 1);
        drain();
        server.onAdmin(HANG.formatted("alwaysOn"));
        source.createIndex("a", "{key: {x: 1}, name: 'x'}", false);
        source.insert("a", 2);
        until("running", () -> is("running"));
        String index = source.lastId;
        for (int id = 0; id < 50; id++) source.insert("b", id);
        until("others flow", () -> at("b").countDocuments() == 50);
        assertTrue(isIn(index, "running"));
        assertEquals(1, at("a").countDocuments());
        server.onAdmin(HANG.formatted("off"));
        source.run("{createIndexes: 'a', indexes: [{key: {x: 1}, name: 'x'}]}");
        drain();
        assertSame();
    }

    @Test
    @Tag("nightly")
    void anIndexBuildThatIsCutOffIsContinuedByTheNextOwner() {
        server.requireTestCommands();
        start();
        for (int id = 0; id < 100; id++) source.insert("a", id);
        drain();
        server.onAdmin(HANG.formatted("alwaysOn"));
        try {
            source.createIndex("a", "{key: {x: 1}, name: 'x'}", false);
            String index = source.lastId;
            source.insert("a", 200);
            until("the build has begun", () -> isIn(index, "running") && isBuilding());
            for (int number = 0; number < 2; number++) sinks.end(sinks.kill(0));
            for (int id = 0; id < 20; id++) source.insert("b", id);
            until("others flow", () -> at("b").countDocuments() == 20);
            assertTrue(isIn(index, "running"), () -> state(index).toString());
        } finally {
            server.onAdmin(HANG.formatted("off"));
        }
        source.run("{createIndexes: 'a', indexes: [{key: {x: 1}, name: 'x'}]}");
        drain();
        assertSame();
    }

    @Test
    @Tag("nightly")
    void manyIndexBuildsHoldUpNoOtherChange() {
        begin(1);
        List<String> built = IntStream.range(0, 17).mapToObj(n -> "i" + n).toList();
        List<String> all = new ArrayList<>(built);
        all.add("a");
        sinks = new SchemaSinks(collection, source, all, 1);
        for (String name : built) source.insert(name, 1);
        drain();
        server.onAdmin(HANG.formatted("alwaysOn"));
        for (String name : built) source.createIndex(name, "{key: {x: 1}, name: 'x'}", false);
        until(
                "running",
                () -> unfinished().stream()
                                .filter(SchemaChangesServerTest::runs)
                                .count()
                        >= 16);
        source.create("a", "{}");
        String create = source.lastId;
        until("made", () -> isIn(create, "done"));
        assertTrue(unfinished().size() >= 16, () -> unfinished().toString());
        server.onAdmin(HANG.formatted("off"));
        drain();
        assertEquals(List.of(), unfinished());
    }

    private static boolean runs(BsonDocument stored) {
        return stored.getString("state").getValue().equals("running");
    }

    private static boolean isBuilding() {
        BsonDocument operations = server.client()
                .getDatabase("admin")
                .runCommand(BsonDocument.parse("{currentOp: 1, 'command.createIndexes': 'a'}"), BsonDocument.class);
        return !operations.getArray("inprog").isEmpty();
    }

    @Test
    void aSinkThatReadsOneNameOfARenameTakesItAsADropOrAsAnotherCollection() {
        sinks = new SchemaSinks(collection, source, List.of("b"), 1, DROPS);
        source.insert("a", 1);
        source.insert("b", 2);
        source.rename("a", "b");
        source.log.keySet().removeIf(partition -> partition.topic().equals(source.topic("a")));
        drain();
        assertEquals(TestTask.documents("{_id: 1, life: 1, x: 1}"), TestTask.stored(at("b")));
        sinks.close();

        begin();
        sinks = new SchemaSinks(collection, source, List.of("a"), 1, DROPS);
        source.insert("a", 1);
        source.rename("a", "b");
        source.log.keySet().removeIf(partition -> partition.topic().equals(source.topic("b")));
        drain();
        assertEquals(List.of(), TestTask.stored(at("a")));
    }

    @Test
    void rowsThatFollowARenameReplaceWithoutConflicts() throws Exception {
        begin(1);
        sinks = new SchemaSinks(collection, source, COLLECTIONS, 1, DROPS);
        for (int id = 0; id < 30; id++) source.insert("a", id);
        drain();
        source.rename("a", "b");
        drain();
        assertEquals(30L, ((Number) sinks.members.get(0).task.metrics().get("Inserts")).longValue());
        assertEquals(30L, ((Number) sinks.members.get(0).task.metrics().get("Updates")).longValue());
        source.drop("b");
        for (int id = 0; id < 30; id++) source.insert("b", id);
        drain();
        assertEquals(60L, ((Number) sinks.members.get(0).task.metrics().get("Inserts")).longValue());
        assertEquals(4L, ((Number) sinks.members.get(0).task.metrics().get("SchemaChangesDone")).longValue());
        assertEquals(0L, ((Number) sinks.members.get(0).task.metrics().get("SchemaChangesWaiting")).longValue());
        assertSame();
    }

    @Test
    void aChangeThatIsLaterThanTheLastTimeToApplyIsNot() {
        start(LogSettings.UNTIL, "1700000000:2");
        source.insert("a", 1); // creates the collection at :1
        source.drop("a");
        drain();
        assertEquals(1, at("a").countDocuments());
    }

    @Test
    void aChangeThatTheFirstPartitionDoesNotHaveIsMadeByTheNextOne() {
        sinks = new SchemaSinks(collection, source, COLLECTIONS, PARTITIONS);
        for (int id = 0; id < 8; id++) source.insert("a", id);
        source.createIndex("a", "{key: {x: 1}, name: 'x'}");
        String lost = source.lastId; // as in a log whose gap was accepted
        source.log
                .get(source.partitions("a").get(0))
                .removeIf(record ->
                        Barrier.is(record) && Barrier.of(record).change().id().equals(lost));
        source.createIndex("a", "{key: {y: 1}, name: 'y'}");
        drain();
        assertTrue(isIn(lost, "done"));
        assertSame();
    }

    // What cannot be read

    @Test
    void aChangeOfALaterVersionStopsTheTask() {
        begin(1);
        sinks = new SchemaSinks(collection, source, COLLECTIONS, 1, DROPS);
        TopicPartition partition = source.partitions("a").get(0);
        SchemaChange known = new SchemaChange(
                "1:1/0/x",
                Kind.DROP,
                DESTINATION + ".a",
                "",
                false,
                new BsonDocument(),
                List.of(),
                false,
                Map.of(partition.topic(), 1));
        BsonDocument unknown = new RawBsonDocument(known.value()).clone();
        BsonDocument value = new BsonDocument();
        unknown.forEach(value::append);
        value.put("ddl", new BsonString("shard"));
        byte[] key = BsonBytes.of(new BsonDocument("what", new BsonInt32(1)));
        for (byte[][] record :
                new byte[][][] {{known.key(), BsonBytes.of(value)}, {known.key(), null}, {key, known.value()}}) {
            source.log.put(
                    partition,
                    new ArrayList<>(List.of(SchemaSource.record(
                            partition, 0, new ClusterTime(1, 1), SchemaChange.OPERATION, record[0], record[1]))));
            SchemaSinks own = new SchemaSinks(collection, source, COLLECTIONS, 1);
            ConnectException error = assertThrows(ConnectException.class, own::iterate);
            assertTrue(error.getMessage().startsWith("TWP-SCHEMA-RECORD: "), error::getMessage);
            own.close();
        }
    }

    // Crashes

    private enum Reached {
        FIRST_ARRIVED,
        ALL_ARRIVED,
        DONE_AND_NOT_NOTED,
        NOTED
    }

    /** Each kind in each state; by day, a third of these. */
    @Test
    @Tag("nightly")
    void aTaskThatIsKilledInAnyStateOfAnyKindIsContinued() {
        server.requireTestCommands();
        List<Kind> kinds = List.of(Kind.CREATE, Kind.CREATE_INDEXES, Kind.RENAME, Kind.REPLACE, Kind.DROP);
        for (Kind kind : kinds)
            for (Reached reached : Reached.values()) {
                int number = kinds.indexOf(kind) + reached.ordinal();
                if (!Fuzz.isNight() && number % 3 > 0) continue;
                begin();
                boolean isZombie = (number + Fuzz.seed()) % 2 == 0;
                assertDoesNotThrow(() -> killAt(kind, reached, isZombie), () -> kind + " " + reached);
                sinks.close();
            }
    }

    private void killAt(Kind kind, Reached reached, boolean isZombie) {
        start(DROPS);
        for (int id = 0; id < 10; id++) source.insert("a", id);
        source.insert("b", 3);
        drain();
        switch (kind) {
            case CREATE -> source.create("c", "{validator: {x: {$gt: -1000}}}");
            case CREATE_INDEXES -> source.createIndex("a", "{key: {x: 1}, name: 'x'}");
            case RENAME -> source.rename("a", "b");
            case DROP -> source.drop("a");
            default -> source.replace("a", 4);
        }
        String id = newest(kind);
        if (reached == Reached.DONE_AND_NOT_NOTED) doWithoutNote(kind, id);
        else until(kind + " " + reached, () -> hasReached(id, reached));
        boolean isDone = reached == Reached.DONE_AND_NOT_NOTED || reached == Reached.NOTED;
        List<BsonValue> made = List.of(uuid("a"), uuid("b"), uuid("c"));
        for (int number = 0; number < 2; number++) {
            SchemaSinks.Member killed = sinks.kill(0);
            if (isZombie) sinks.zombies.add(killed);
            else sinks.end(killed);
        }
        server.fail("off", "");
        for (int more = 200; more < 210; more++) source.insert(kind == Kind.RENAME ? "b" : "a", more);
        drain();
        assertSame();
        // of a dropped one the next document makes another
        if (isDone && kind != Kind.DROP)
            assertEquals(made, List.of(uuid("a"), uuid("b"), uuid("c")), "it was made twice");
    }

    private String newest(Kind kind) {
        return source.log.values().stream()
                .flatMap(List::stream)
                .filter(Barrier::is)
                .map(record -> Barrier.of(record).change())
                .filter(change -> change.kind() == kind)
                .map(SchemaChange::id)
                .reduce((first, next) -> SchemaChange.isLater(first, next) ? first : next)
                .orElseThrow();
    }

    private static boolean hasReached(String id, Reached reached) {
        BsonDocument stored = state(id);
        if (stored == null) return false;
        return switch (reached) {
            case FIRST_ARRIVED -> true;
            case ALL_ARRIVED -> stored.get("arrived").equals(stored.get("expected"));
            default -> isIn(id, "done");
        };
    }

    /** A task has begun the change; another one makes it, and cannot note that. */
    private void doWithoutNote(Kind kind, String id) {
        server.fail(
                "alwaysOn",
                "appName: 'sink', namespace: 'towpath.schema_changes', failCommands: ['update'], errorCode: 13");
        BsonValue before = uuid(kind == Kind.CREATE ? "c" : "a");
        server.client()
                .getDatabase(Destination.DATABASE)
                .getCollection("schema_changes", BsonDocument.class)
                .insertOne(new BsonDocument(
                                "_id",
                                new BsonDocument("pipeline", new BsonString(TestTask.PIPELINE))
                                        .append("id", new BsonString(id)))
                        .append("state", new BsonString("running"))
                        .append("began", new BsonDateTime(0))
                        .append("uuid", before)
                        .append("target", kind == Kind.RENAME ? uuid("b") : BsonNull.VALUE));
        until(kind + " is made", () -> switch (kind) {
            case CREATE -> !uuid("c").isNull();
            case CREATE_INDEXES -> listed(destination).get("a").containsKey("index x");
            case RENAME, DROP -> uuid("a").isNull();
            default -> !Set.of(before, BsonNull.VALUE).contains(uuid("a"));
        });
        assertTrue(isIn(id, "running"));
    }

    private BsonValue uuid(String collection) {
        BsonDocument entry = destination
                .listCollections(BsonDocument.class)
                .filter(new BsonDocument("name", new BsonString(collection)))
                .first();
        return entry == null ? BsonNull.VALUE : entry.getDocument("info").get("uuid");
    }

    @Test
    @Timeout(600)
    void whateverHappensInBetweenBothSidesAreTheSame() {
        server.requireTestCommands();
        // a transaction of which the task got no answer holds its documents for so long
        server.onAdmin("{setParameter: 1, transactionLifetimeLimitSeconds: 3}");
        Map<String, Integer> outcomes = Fuzz.run("schema changes", 1, Duration.ofMinutes(2), random -> {
            begin();
            // a displaced task gives up after this, also on a machine that does nothing for seconds
            start(SinkSettings.DDL_DROP, "apply", SinkSettings.SILENCE, "300", SinkSettings.RETRY_TIMEOUT, "2000");
            try {
                for (int step = 0; step < 60; step++) {
                    for (int changes = random.nextInt(6); changes > 0; changes--) change(random);
                    if (random.nextInt(6) == 0) disturb(random);
                    sinks.iterate();
                    assertOneLifeEach();
                }
                server.fail("off", "");
                long t1 = System.nanoTime();
                drain();
                assertSame();
                return "same after " + (states().size() > 20 ? "many" : "few");
            } finally {
                server.fail("off", "");
                sinks.close();
            }
        });
        assertTrue(outcomes.containsKey("same after many"), outcomes::toString);
    }

    private void change(Random random) {
        String collection = COLLECTIONS.get(random.nextInt(3));
        int id = random.nextInt(20);
        if (!source.has(collection)) {
            if (random.nextInt(3) == 0) source.replace(collection, random.nextInt(6));
            else
                source.create(
                        collection, random.nextBoolean() ? "{}" : "{validator: {x: {$type: 'int'}}, capped: false}");
            return;
        }
        Set<String> indexes = source.indexes(collection).stream()
                .map(index -> index.getString("name").getValue())
                .collect(Collectors.toSet());
        String name = "xyz".substring(random.nextInt(3)).substring(0, 1);
        switch (random.nextInt(40)) {
            case 0 -> source.drop(collection);
            case 1 -> source.replace(collection, random.nextInt(10));
            case 2, 3 -> {
                String to = COLLECTIONS.get(random.nextInt(3));
                if (!to.equals(collection)) source.rename(collection, to);
            }
            case 4, 5 -> {
                if (indexes.contains(name)) source.dropIndex(collection, name);
                else
                    source.createIndex(
                            collection, "{key: {%s: 1, life: -1}, name: '%s', sparse: true}".formatted(name, name));
            }
            case 6 -> source.modify(collection, "{validator: {y: {$ne: %d}}}".formatted(id));
            case 7 -> {
                if (indexes.contains(name))
                    source.modify(
                            collection, "{index: {name: '%s', hidden: %s}}".formatted(name, random.nextBoolean()));
            }
            case 8, 9, 10, 11, 12, 13, 14 -> source.set(collection, id, random.nextInt());
            case 15, 16, 17, 18 -> source.delete(collection, id);
            default -> {
                boolean isThere = source.database
                                .getCollection(collection)
                                .countDocuments(new BsonDocument("_id", new BsonInt32(id)))
                        > 0;
                if (!isThere) source.insert(collection, id);
            }
        }
    }

    private void disturb(Random random) {
        String skip = "{times: %d}".formatted(1 + random.nextInt(3));
        String how = "appName: 'sink', failCommands: [%s], %s";
        switch (random.nextInt(12)) {
            case 0 -> server.fail(skip, how.formatted("'findAndModify', 'find'", "errorCode: 13"));
            case 1 -> server.fail(skip, how.formatted("'insert', 'update', 'delete'", "errorCode: 189"));
            case 2 -> server.fail(
                    skip,
                    how.formatted(
                            "'create', 'createIndexes', 'drop', 'renameCollection', 'collMod'", "errorCode: 371"));
            case 3 -> server.fail(
                    skip,
                    how.formatted(
                            "'create', 'createIndexes', 'drop', 'renameCollection', 'collMod', 'update'",
                            "closeConnection: true"));
            case 4 -> server.fail(
                    skip,
                    how.formatted("'commitTransaction', 'listCollections', 'listIndexes'", "closeConnection: true"));
            case 5 -> server.fail(
                    skip,
                    how.formatted(
                            "'create', 'createIndexes', 'drop', 'renameCollection'",
                            "blockConnection: true, blockTimeMS: 300"));
            case 6 -> sinks.end(sinks.kill(random.nextInt(2)));
            case 7 -> sinks.displace(random.nextInt(2));
            case 8 -> server.offsets() // a failover took back that a partition came to a change
                    .updateOne(
                            BsonDocument.parse("{barrier: {$exists: true}}"),
                            BsonDocument.parse("{$unset: {barrier: ''}}"));
            case 9 -> server.fail(
                    "{times: 2}", how.formatted("'insert', 'update'", "blockConnection: true, blockTimeMS: 700"));
            default -> {
                List<TopicPartition> partitions = new ArrayList<>(source.log.keySet());
                if (partitions.isEmpty()) return;
                for (int moves = random.nextInt(4); moves >= 0; moves--)
                    sinks.move(partitions.get(random.nextInt(partitions.size())), random.nextInt(2));
            }
        }
    }
}
