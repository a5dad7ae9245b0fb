package io.towpath.sink.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.sink.ddl.Step.Decision;
import io.towpath.sink.ddl.Step.Noted;
import io.towpath.sink.ddl.Step.Progress;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

/** What a change needs at a destination in each state that a task before may have left. */
class PlanTest {
    private static final BsonBinary ONE = new BsonBinary(new UUID(0, 1));
    private static final BsonBinary TWO = new BsonBinary(new UUID(0, 2));
    private static final BsonBinary THREE = new BsonBinary(new UUID(0, 3));
    private static final List<BsonDocument> INDEXES = List.of(BsonDocument.parse("{key: {x: 1}, name: 'x'}"));

    private static final List<BsonDocument> OTHER = List.of(BsonDocument.parse("{key: {y: 1}, name: 'y'}"));

    private static SchemaChange change(Kind kind, String to) {
        Map<String, Integer> topics = to.isEmpty() ? Map.of("p.d.a", 2) : Map.of("p.d.a", 2, "p." + to, 2);
        return new SchemaChange("1:1/0/d.a", kind, "d.a", to, false, new BsonDocument(), INDEXES, false, topics);
    }

    private static Described collection(BsonBinary uuid) {
        return new Described(false, new BsonDocument(), uuid, INDEXES, List.of());
    }

    private static Described indexed(BsonBinary uuid, List<BsonDocument> indexes) {
        return new Described(false, new BsonDocument(), uuid, indexes, List.of());
    }

    private static Plan plan(
            SchemaChange change, Described present, Described target, Noted noted, boolean drops, boolean replays) {
        return Plan.of(new Plan.Situation(change, new Names(Map.of()), present, target, noted, drops, replays));
    }

    /** As in {@code drop d.a 1, create d.a}: the commands, what they are about, and which uuid they are meant for. */
    private static String commands(Plan plan) {
        return String.join(
                ", ",
                assertInstanceOf(Plan.Commands.class, plan).commands().stream()
                        .map(command -> {
                            String verb = command.body().getFirstKey();
                            String name = command.body().getString(verb).getValue();
                            String namespace = name.contains(".") ? name : command.database() + "." + name;
                            String fence = command.fence() == null
                                    ? ""
                                    : " " + command.fence().asUuid().getLeastSignificantBits();
                            return verb + " " + namespace + fence;
                        })
                        .toList());
    }

    @Test
    void aDropIsOfTheCollectionThatItMetFirst() {
        SchemaChange drop = change(Kind.DROP, "");
        assertEquals("", commands(plan(drop, null, null, null, false, false)));
        assertInstanceOf(Plan.Held.class, plan(drop, collection(ONE), null, null, false, false));
        assertEquals("drop d.a 1", commands(plan(drop, collection(ONE), null, null, true, false)));
        assertEquals("drop d.a 1", commands(plan(drop, collection(ONE), null, new Noted(ONE, null), true, false)));
        assertEquals("", commands(plan(drop, collection(TWO), null, new Noted(ONE, null), true, false)));
        assertEquals("", commands(plan(drop, collection(TWO), null, new Noted(null, null), true, false)));
    }

    @Test
    void aDropOfAViewDropsNoCollection() {
        SchemaChange drop = new SchemaChange(
                "1:1/0/d.a", Kind.DROP, "d.a", "", true, new BsonDocument(), List.of(), false, Map.of("p.d.a", 2));
        Described view = new Described(true, new BsonDocument(), null, List.of(), List.of());
        assertEquals("drop d.a", commands(plan(drop, view, null, null, false, false)));
        assertEquals("", commands(plan(drop, collection(ONE), null, null, false, false)));
        assertEquals("", commands(plan(drop, collection(ONE), null, null, true, false)));
    }

    @Test
    void aReplacementIsMadeOnce() {
        SchemaChange replace = change(Kind.REPLACE, "");
        String made = "create d.a, createIndexes d.a";
        assertEquals(made, commands(plan(replace, null, null, null, false, false)));
        assertEquals("drop d.a 1, " + made, commands(plan(replace, collection(ONE), null, null, false, false)));
        Noted met = new Noted(ONE, null);
        assertEquals("drop d.a 1, " + made, commands(plan(replace, collection(ONE), null, met, false, false)));
        assertEquals(made, commands(plan(replace, null, null, met, false, false)));
        assertEquals("", commands(plan(replace, collection(TWO), null, met, false, false)));
        Described bare = new Described(false, new BsonDocument(), TWO, List.of(), List.of());
        assertEquals("createIndexes d.a 2", commands(plan(replace, bare, null, met, false, false)));
        assertEquals("", commands(plan(replace, collection(TWO), null, new Noted(null, null), false, false)));
    }

    @Test
    void aRenameMovesTheCollectionThatItMetFirst() {
        SchemaChange rename = change(Kind.RENAME, "d.b");
        String made = "create d.b, createIndexes d.b";
        Noted both = new Noted(ONE, TWO);
        assertEquals("renameCollection d.a 1", commands(plan(rename, collection(ONE), null, null, false, false)));
        assertEquals(
                "renameCollection d.a 1", commands(plan(rename, collection(ONE), collection(TWO), both, false, false)));
        assertEquals("", commands(plan(rename, null, collection(ONE), both, false, false)), "it is done");
        assertEquals("", commands(plan(rename, null, indexed(ONE, List.of()), both, false, false)), "as it was");
        assertEquals("", commands(plan(rename, collection(THREE), collection(ONE), both, false, false)));
        assertEquals(made, commands(plan(rename, null, null, null, false, false)), "neither is there");
        assertEquals("drop d.b 2, " + made, commands(plan(rename, null, collection(TWO), null, false, false)));
        Noted target = new Noted(null, TWO);
        assertEquals("drop d.b 2, " + made, commands(plan(rename, null, collection(TWO), target, false, false)));
        assertEquals("", commands(plan(rename, null, collection(THREE), target, false, false)));
    }

    @Test
    void aRenameThatCannotMoveTheCollectionMakesAnEmptyOne() {
        String made = "create d.b, createIndexes d.b";
        SchemaChange rename = change(Kind.RENAME, "d.b");
        Noted both = new Noted(ONE, TWO);
        assertEquals(made + ", drop d.a 1", commands(plan(rename, collection(ONE), null, null, true, true)));
        assertEquals(
                "drop d.b 2, " + made + ", drop d.a 1",
                commands(plan(rename, collection(ONE), collection(TWO), both, true, true)));
        assertEquals("drop d.a 1", commands(plan(rename, collection(ONE), collection(THREE), both, true, true)));
        assertEquals("", commands(plan(rename, null, collection(THREE), both, true, true)));
        SchemaChange across = change(Kind.RENAME, "e.b");
        assertEquals(
                "create e.b, createIndexes e.b, drop d.a 1",
                commands(plan(across, collection(ONE), null, null, false, false)));
    }

    @Test
    void aCollectionIsCreatedUnlessItIsThere() {
        SchemaChange create = change(Kind.CREATE, "");
        assertEquals("create d.a, createIndexes d.a", commands(plan(create, null, null, null, false, false)));
        assertEquals("", commands(plan(create, collection(ONE), null, null, false, false)));
        Described other = new Described(false, BsonDocument.parse("{validator: {x: 1}}"), ONE, List.of(), List.of());
        Plan.Refused refused = assertInstanceOf(Plan.Refused.class, plan(create, other, null, null, false, false));
        assertEquals(
                "db.getSiblingDB(\"d\").runCommand({\"collMod\": \"a\", \"validationAction\": \"error\", \"validator\": {}})",
                refused.fix().shell());
        Described view = new Described(true, new BsonDocument(), null, List.of(), List.of());
        refused = assertInstanceOf(Plan.Refused.class, plan(create, view, null, null, false, false));
        assertEquals(
                "db.getSiblingDB(\"d\").runCommand({\"drop\": \"a\"})",
                refused.fix().shell());
    }

    private static final Described VIEW = new Described(true, new BsonDocument(), null, List.of(), List.of());

    private static String fix(Plan plan) {
        return assertInstanceOf(Plan.Refused.class, plan).fix().shell();
    }

    @Test
    void aViewInThePlaceOfACollectionIsRefused() {
        String drop = "db.getSiblingDB(\"d\").runCommand({\"drop\": \"%s\"})";
        SchemaChange rename = change(Kind.RENAME, "d.b");
        assertEquals(drop.formatted("b"), fix(plan(rename, collection(ONE), VIEW, null, true, false)));
        for (SchemaChange change : List.of(change(Kind.CREATE_INDEXES, ""), modified("{validator: {x: 1}}")))
            assertEquals(drop.formatted("a"), fix(plan(change, VIEW, null, null, true, false)));
    }

    @Test
    void aChangeOfACollectionThatIsMissingSaysHowToCreateIt() {
        assertEquals(
                "db.getSiblingDB(\"d\").runCommand({\"create\": \"a\"})",
                fix(plan(modified("{validator: {x: 1}}"), null, null, null, false, false)));
    }

    private static SchemaChange modified(String options) {
        return new SchemaChange(
                "1:1/0/d.a",
                Kind.MODIFY,
                "d.a",
                "",
                false,
                BsonDocument.parse(options),
                List.of(),
                false,
                Map.of("p.d.a", 2));
    }

    private static SchemaChange collated(Kind kind, int partitions) {
        boolean isRename = kind == Kind.RENAME;
        return new SchemaChange(
                "1:1/0/d.a",
                kind,
                "d.a",
                isRename ? "e.b" : "",
                false,
                BsonDocument.parse("{collation: {locale: 'de'}, validationLevel: 'moderate'}"),
                INDEXES,
                false,
                isRename ? Map.of("p.d.a", partitions, "p.e.b", partitions) : Map.of("p.d.a", partitions));
    }

    @Test
    void severalPartitionsNeedTheSimpleCollation() {
        Described german =
                new Described(false, BsonDocument.parse("{collation: {locale: 'de'}}"), ONE, INDEXES, List.of());
        Described simple =
                new Described(false, BsonDocument.parse("{validationLevel: 'moderate'}"), ONE, INDEXES, List.of());
        for (Kind kind : List.of(Kind.CREATE, Kind.REPLACE)) {
            Plan.Refused refused =
                    assertInstanceOf(Plan.Refused.class, plan(collated(kind, 2), null, null, null, false, false));
            assertTrue(refused.reason().startsWith("TWP-COLLATION: "));
            assertEquals(
                    "db.getSiblingDB(\"d\").runCommand({\"create\": \"a\", \"validationLevel\": \"moderate\"})",
                    refused.fix().shell());
            assertEquals(
                    "db.getSiblingDB(\"d\").runCommand({\"drop\": \"a\"})",
                    fix(plan(collated(kind, 2), german, null, null, false, false)));
        }
        assertEquals("", commands(plan(collated(Kind.CREATE, 2), simple, null, null, false, false)));
        for (Described present : Arrays.asList(simple, null)) {
            Plan replaced = plan(collated(Kind.REPLACE, 2), present, null, new Noted(ONE, null), false, false);
            List<Command> made = assertInstanceOf(Plan.Commands.class, replaced).commands();
            assertFalse(made.get(made.size() - 2).body().containsKey("collation"), "the create");
        }
        fix(plan(collated(Kind.RENAME, 2), collection(ONE), null, null, true, false));
        assertEquals(
                "drop e.b 1, create e.b, createIndexes e.b, drop d.a 2",
                commands(plan(collated(Kind.RENAME, 2), collection(TWO), simple, null, true, false)));
    }

    @Test
    void anotherCollationTakesAnotherCollection() {
        Described german =
                new Described(false, BsonDocument.parse("{collation: {locale: 'de'}}"), ONE, INDEXES, List.of());
        assertEquals(
                "db.getSiblingDB(\"d\").runCommand({\"drop\": \"a\"})",
                fix(plan(change(Kind.CREATE, ""), german, null, null, false, false)));
    }

    @Test
    void aTimeSeriesIsRefusedHoweverItIsDescribed() {
        for (String options : List.of("{timeseries: {timeField: 't'}}", "{viewOn: 'system.buckets.v'}")) {
            SchemaChange series = new SchemaChange(
                    "1:1/0/d.v",
                    Kind.CREATE,
                    "d.v",
                    "",
                    options.contains("viewOn"),
                    BsonDocument.parse(options),
                    List.of(),
                    false,
                    Map.of("p.d.v", 1));
            assertInstanceOf(Plan.Refused.class, plan(series, null, null, null, false, false));
        }
    }

    @Test
    void theSimpleCollationIsNone() {
        SchemaChange simple = new SchemaChange(
                "1:1/0/d.a",
                Kind.CREATE,
                "d.a",
                "",
                false,
                BsonDocument.parse("{collation: {locale: 'simple'}}"),
                List.of(),
                false,
                Map.of("p.d.a", 2));
        assertEquals("create d.a", commands(plan(simple, null, null, null, false, false)));
    }

    @Test
    void aViewIsCreatedAndModifiedAsItIs() {
        BsonDocument options = BsonDocument.parse("{viewOn: 'b', pipeline: [], size: 5}");
        for (Kind kind : List.of(Kind.CREATE, Kind.MODIFY)) {
            SchemaChange view =
                    new SchemaChange("1:1/0/d.v", kind, "d.v", "", true, options, List.of(), false, Map.of("p.d.v", 1));
            Plan plan = plan(view, kind == Kind.CREATE ? null : VIEW, null, null, false, false);
            BsonDocument body = assertInstanceOf(Plan.Commands.class, plan)
                    .commands()
                    .get(0)
                    .body();
            options.forEach((name, value) -> assertEquals(value, body.get(name)));
        }
    }

    @Test
    void onePartitionKeepsTheCollation() {
        for (Kind kind : List.of(Kind.CREATE, Kind.REPLACE, Kind.RENAME)) {
            Plan plan = plan(collated(kind, 1), null, null, null, false, false);
            Command create =
                    assertInstanceOf(Plan.Commands.class, plan).commands().get(0);
            assertEquals(BsonDocument.parse("{locale: 'de'}"), create.body().get("collation"));
        }
    }

    @Test
    void anIndexThatIsNotThereNeedsNoChange() {
        assertEquals("collMod d.a 1", commands(plan(hidden("name: 'x'"), collection(ONE), null, null, false, false)));
        assertEquals(
                "collMod d.a 1",
                commands(plan(hidden("keyPattern: {x: 1}"), collection(ONE), null, null, false, false)));
        Described bare = new Described(false, new BsonDocument(), ONE, List.of(), List.of());
        for (String name : List.of("name: 'x'", "keyPattern: {x: 1}"))
            for (Described without : List.of(bare, indexed(ONE, OTHER)))
                assertEquals("", commands(plan(hidden(name), without, null, null, false, false)), name);
    }

    private static SchemaChange hidden(String index) {
        BsonDocument options = BsonDocument.parse("{index: {%s, hidden: true}}".formatted(index));
        return new SchemaChange(
                "1:1/0/d.a", Kind.MODIFY, "d.a", "", false, options, List.of(), false, Map.of("p.d.a", 2));
    }

    @Test
    void indexesAreMadeAndDroppedAsFarAsTheyAreMissingAndThere() {
        SchemaChange create = change(Kind.CREATE_INDEXES, "");
        Described bare = new Described(false, new BsonDocument(), ONE, List.of(), List.of());
        Plan missing = plan(create, bare, null, null, false, false);
        assertEquals("createIndexes d.a 1", commands(missing));
        BsonDocument sent = ((Plan.Commands) missing).commands().get(0).sent(true);
        assertEquals("majority", sent.getString("commitQuorum").getValue());
        assertEquals("createIndexes d.a", commands(plan(create, null, null, null, false, false)));
        assertEquals("", commands(plan(create, collection(ONE), null, null, false, false)));
        Described building = new Described(false, new BsonDocument(), ONE, List.of(), INDEXES);
        assertEquals("createIndexes d.a 1", commands(plan(create, building, null, null, false, false)));
        Described other = indexed(ONE, OTHER);
        assertEquals("createIndexes d.a 1", commands(plan(create, other, null, null, false, false)));
        SchemaChange drop = change(Kind.DROP_INDEXES, "");
        assertEquals("", commands(plan(drop, other, null, null, false, false)));
        assertEquals("dropIndexes d.a 1", commands(plan(drop, collection(ONE), null, null, false, false)));
        assertEquals("", commands(plan(drop, bare, null, null, false, false)));
        assertEquals("", commands(plan(drop, null, null, null, false, false)));
    }

    @Test
    void aRenameOfWhichASinkReadsOneNameIsADropOrAReplacement() {
        SchemaChange rename = change(Kind.RENAME, "d.b");
        assertEquals(Kind.RENAME, Plan.asRead(rename, Set.of("p.d.a", "p.d.b")).kind());
        assertEquals(Kind.DROP, Plan.asRead(rename, Set.of("p.d.a")).kind());
        SchemaChange replacement = Plan.asRead(rename, Set.of("p.d.b"));
        assertEquals(Kind.REPLACE, replacement.kind());
        assertEquals("d.b", replacement.namespace());
    }

    @Test
    void aTaskMakesAChangeOnceAllStandUnlessItWasDecidedOtherwise() {
        assertEquals(Step.WAIT, Step.after(null, true));
        for (State state : State.values()) {
            boolean isOver = State.OVER.contains(state);
            Progress progress = new Progress(state, Decision.NONE, 1, "", false, null);
            assertEquals(isOver ? Step.PASS : Step.MAKE, Step.after(progress, true));
            assertEquals(isOver ? Step.PASS : Step.WAIT, Step.after(progress, false));
            Progress skipped = new Progress(state, Decision.SKIP, 1, "", false, null);
            Step expected = isOver ? Step.PASS : state == State.RUNNING ? Step.WAIT : Step.SKIP;
            assertEquals(expected, Step.after(skipped, false));
        }
    }

    @Test
    void aCommandNamesItsCollectionWhereTheServerKnowsThat() {
        Command drop = Command.drop(new MongoNamespace("d.a"), ONE);
        assertEquals(ONE, drop.sent(true).get("collectionUUID"));
        assertNull(drop.sent(false).get("collectionUUID"));
        assertTrue(drop.sent(false).containsKey("writeConcern"));
    }
}
