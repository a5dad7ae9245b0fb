package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.IndexOptions;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What a real destination refuses goes to the dead letters, and nothing else does. */
class RefusedServerTest extends DestinationTest {
    @Test
    void aRefusedRecordIsSetAsideAndTheRestApplied() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(
                    5,
                    "c {_id: 1, a: 1}",
                    "u {_id: 1, $set: {'a.b': 2}}",
                    "u {_id: 1, $set: {c: 3}}",
                    "c {_id: 2}",
                    "u {_id: 1, $set: {d: 4}}");
            assertEquals(TestTask.documents("{_id: 1, a: 1, c: 3, d: 4}", "{_id: 2}"), TestTask.stored(collection));

            SinkRecord letter = sink.context.letters.get(0);
            assertEquals(1, sink.context.letters.size());
            assertEquals(sink.partition.topic(), text(letter, "topic"));
            assertEquals("0", text(letter, "partition"));
            assertEquals("6", text(letter, "offset"));
            assertEquals(collection.getNamespace().getFullName(), text(letter, "namespace"));
            assertEquals("28", text(letter, "code"));
            assertEquals("Cannot create field 'b' in element {a: 1}", text(letter, "reason"));
            assertEquals("1 u 1700000000:6 1700000000000", text(letter, "v"));
            assertEquals(BsonDocument.parse("{$set: {'a.b': 2}}"), new RawBsonDocument((byte[]) letter.value()));
        }
    }

    @Test
    void aRefusedRecordIsToldOnceThoughItsBatchComesAgain() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, a: 1}", "u {_id: 1, $set: {'a.b': 2}}");
            sink.put(0, "c {_id: 1, a: 1}", "u {_id: 1, $set: {'a.b': 2}}", "c {_id: 2}");
            assertEquals(1, sink.context.letters.size());
            assertEquals(TestTask.documents("{_id: 1, a: 1}", "{_id: 2}"), TestTask.stored(collection));
        }
    }

    /** A replace and an update are two commands of one bulk: the second fails as well, since the first has ended the transaction. */
    @Test
    void aRefusedUpdateNextToAReplaceIsSetAside() {
        server.run("{insert: '%s', documents: [{_id: 1, a: 1}, {_id: 2}]}".formatted(name()));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 2, x: 1}");
            sink.put(1, "u {_id: 1, $set: {'a.b': 2}}", "c {_id: 2, x: 2}");
            assertEquals(TestTask.documents("{_id: 1, a: 1}", "{_id: 2, x: 2}"), TestTask.stored(collection));
            assertEquals(1, sink.context.letters.size());
        }
    }

    @Test
    void aDocumentThatAnotherIndexOrAValidatorRefusesIsSetAside() {
        collection.createIndex(BsonDocument.parse("{u: 1}"), new IndexOptions().unique(true));
        server.run("{collMod: '%s', validator: {bad: {$exists: false}}}".formatted(name()));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, u: 1}", "c {_id: 2, u: 1}", "c {_id: 3, u: 3, bad: 1}", "c {_id: 4, u: 4}");
            assertEquals(TestTask.documents("{_id: 1, u: 1}", "{_id: 4, u: 4}"), TestTask.stored(collection));
            assertEquals(
                    List.of("11000", "121"),
                    sink.context.letters.stream()
                            .map(letter -> text(letter, "code"))
                            .toList());
        }
    }

    @Test
    void aRecordForANameThatIsAViewsIsSetAside() {
        server.run("{create: '%s', viewOn: 'other', pipeline: []}".formatted(name()));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}", "u {_id: 2, $set: {a: 1}}", "d {_id: 3}");
            assertEquals(List.of("166", "166", "166"), letters(sink, "code"));
        }
    }

    @Test
    void aUniqueValueFreedAndTakenInOneBatchIsNotRefused() {
        collection.createIndex(BsonDocument.parse("{u: 1}"), new IndexOptions().unique(true));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, u: 1}");
            sink.put(1, "u {_id: 1, $set: {u: 2}}", "c {_id: 2, u: 1}", "d {_id: 2}", "c {_id: 3, u: 1}");
            assertEquals(TestTask.documents("{_id: 1, u: 2}", "{_id: 3, u: 1}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void aRecordThatBreaksTheContractIsSetAside() {
        try (TestTask sink = TestTask.opened(collection)) {
            byte[] id = Raw.document(Raw.int32("_id", 1));
            sink.task.put(List.of(
                    sink.record(0, "c", id, new byte[] {9, 9}),
                    sink.record(1, "u", id, Raw.document(Raw.int32("a", 1))),
                    sink.record(2, "c", id, id)));
            assertEquals(TestTask.documents("{_id: 1}"), TestTask.stored(collection));
            assertEquals(
                    List.of(
                            "no record of Towpath's: BSON is cut off: 5 bytes needed at byte 0 of 2",
                            "no record of Towpath's: a value with the field 'a' and without an _id is neither a document nor an update"),
                    sink.context.letters.stream()
                            .map(letter -> text(letter, "reason"))
                            .toList());
        }
    }

    @Test
    void aDocumentThatGrowsTooLargeIsSetAside() {
        String half = "x".repeat(9 << 20);
        try (TestTask sink = TestTask.opened(collection)) {
            byte[] id = Raw.document(Raw.int32("_id", 1));
            sink.task.put(List.of(
                    sink.record(0, "c", id, Raw.document(Raw.int32("_id", 1), Raw.string("a", half))),
                    sink.record(1, "u", id, Raw.document(Raw.embedded("$set", Raw.string("b", half)))),
                    sink.record(2, "u", id, Raw.document(Raw.embedded("$set", Raw.int32("c", 1))))));
            assertEquals(1, sink.context.letters.size());
            assertEquals(
                    List.of("_id", "a", "c"),
                    new ArrayList<>(TestTask.stored(collection).get(0).keySet()));
        }
    }

    /** Whether its update is operators, a splice, or the stage of a pipeline, and whatever is beside it. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "$set: {a: 1}",
                "$unset: {a: 0}",
                "$splice: {l: [2, [1, 1, []]]}",
                "$splice: {l: [2, [2, 0, [3]]]}",
                "$set: {z: 1, a: 1, y: 1, b: 1, x: 1, c: 1, w: 1}"
            })
    void anUpdateWhoseDocumentSomeoneRemovedIsADeadLetterAndTheRestIsApplied(String update) throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, l: [1, 2]}", "c {_id: 2, l: [1, 2]}", "c {_id: 3}");
            collection.deleteOne(BsonDocument.parse("{_id: 2}"));
            sink.put(3, "u {_id: 1, $set: {b: 1}}", "u {_id: 2, %s}".formatted(update), "d {_id: 3}", "d {_id: 9}");
            assertEquals(TestTask.documents("{_id: 1, l: [1, 2], b: 1}"), TestTask.stored(collection));
            assertEquals(List.of("4"), letters(sink, "offset"));
            assertEquals(List.of("0"), letters(sink, "code"));
            assertEquals(List.of(WritePlan.GONE), letters(sink, "reason"));
            assertEquals(List.of(collection.getNamespace().getFullName()), letters(sink, "namespace"));
            assertEquals(1L, sink.metrics().get("Refused"));
        }
    }

    /** One for each document: to re-read it repairs whatever it missed. */
    @ParameterizedTest
    @ValueSource(strings = {"true", "false"})
    void aDocumentThatSomeoneRemovedIsOneDeadLetterUntilARecordHasItWhole(String fold) {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            collection.deleteMany(new BsonDocument());
            sink.put(2, "u {_id: 1, $set: {a: 1}}", "u {_id: 1, $set: {b: 1}}", "u {_id: 2, $set: {a: 1}}");
            sink.put(5, "u {_id: 1, $set: {c: 1}}", "u {_id: 1, $splice: {l: [1, [0, 1, []]]}}");
            assertEquals(List.of("2", "4"), letters(sink, "offset"));
            sink.put(7, "r {_id: 1, a: 1, b: 1, c: 1}", "u {_id: 1, $set: {d: 1}}", "u {_id: 2, $set: {b: 1}}");
            assertEquals(TestTask.documents("{_id: 1, a: 1, b: 1, c: 1, d: 1}"), TestTask.stored(collection));
            assertEquals(List.of("2", "4"), letters(sink, "offset"));
            collection.deleteMany(new BsonDocument());
            sink.put(10, "u {_id: 1, $set: {e: 1}}", "d {_id: 2}");
            assertEquals(List.of("2", "4", "10"), letters(sink, "offset"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"true", "false"})
    void aDocumentThatTheSameBatchHasWholeOrDeletesIsNoDeadLetter(String fold) {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}");
            collection.deleteMany(new BsonDocument());
            sink.put(2, "u {_id: 1, $set: {a: 1}}", "u {_id: 2, $set: {a: 1}}", "r {_id: 1, a: 1}", "d {_id: 2}");
            assertEquals(TestTask.documents("{_id: 1, a: 1}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void theUpdatesOfADocumentThatTheDestinationRefusedAreCountedOnly() throws Exception {
        server.run("{create: '%s', validator: {bad: {$exists: false}}}".formatted(name()));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, bad: 1}", "u {_id: 1, $set: {a: 1}}");
            sink.put(2, "u {_id: 1, $set: {b: 1}}");
            assertEquals(List.of("121"), letters(sink, "code"));
            assertEquals(2L, sink.metrics().get("WithoutDocument"));
        }
    }

    /** A log without a copy, and a sink without a topic for dead letters. */
    @ParameterizedTest
    @CsvSource({LogSettings.COPY + ", none", "errors.deadletterqueue.topic.name, ''"})
    void whereItSaysNothingAnUpdateWithoutADocumentIsCountedOnly(String setting, String value) throws Exception {
        try (TestTask sink = TestTask.opened(collection, setting, value)) {
            sink.put(0, "u {_id: 1, $set: {a: 1}}", "u {_id: 2, $splice: {l: [1, [0, 1, []]]}}", "c {_id: 3}");
            assertEquals(TestTask.documents("{_id: 3}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
            assertEquals(2L, sink.metrics().get("WithoutDocument"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"true", "false"})
    void anUpdateWhoseRowFollowsMayFindNoDocument(String fold) throws Exception {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            List<SinkRecord> filling = sink.records(
                    0,
                    "u {_id: 1, $set: {a: 1}}",
                    "u {_id: 1, $splice: {l: [1, [0, 1, []]]}}",
                    "u {_id: 2, $set: {a: 1}}",
                    "u {_id: 3, $set: {z: 1, a: 1, y: 1, b: 1, x: 1, c: 1, w: 1}}");
            sink.task.put(filling.stream().map(TestTask::marked).toList());
            assertEquals(List.of(), sink.context.letters);
            assertEquals(0L, sink.metrics().get("WithoutDocument"));
            sink.put(4, "r {_id: 1, l: [1]}", "u {_id: 1, $set: {a: 2}}");
            assertEquals(TestTask.documents("{_id: 1, l: [1], a: 2}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters, "the row repairs what was not applied");
            collection.deleteMany(new BsonDocument());
            sink.put(6, "u {_id: 1, $set: {a: 3}}", "u {_id: 2, $set: {a: 2}}");
            assertEquals(List.of("6", "7"), letters(sink, "offset"));
            assertEquals(2L, sink.metrics().get("WithoutDocument"));
            sink.task.put(sink.records(8, "u {_id: 1, $set: {a: 4}}").stream()
                    .map(TestTask::marked)
                    .toList());
            assertEquals(2, sink.context.letters.size());
        }
    }

    /** What is not a dead letter is one once others have come again as a whole. */
    @Test
    @Tag("nightly")
    void anEmptiedCollectionNeitherStopsTheSinkNorFillsTheDeadLetters() throws Exception {
        int count = StaleDocuments.MOST + 1;
        String[] updates = IntStream.range(0, count)
                .mapToObj("u {_id: %d, $set: {a: 1}}"::formatted)
                .toArray(String[]::new);
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, updates);
            sink.put(count, updates);
            assertEquals(StaleDocuments.MOST, sink.context.letters.size());
            assertEquals(2L * count, sink.metrics().get("WithoutDocument"));
            sink.put(2 * count, "r {_id: 0}", updates[count - 1]);
            assertEquals(StaleDocuments.MOST + 1, sink.context.letters.size());
        }
    }

    @Test
    void withoutATopicForDeadLettersTheTaskStops() {
        try (TestTask sink = TestTask.opened(collection, "errors.deadletterqueue.topic.name", "")) {
            ConnectException stopped = assertThrows(
                    ConnectException.class, () -> sink.put(0, "c {_id: 1, a: 1}", "u {_id: 1, $set: {'a.b': 2}}"));
            assertTrue(stopped.getMessage().contains("there is no dead-letter topic"), stopped::getMessage);
            assertEquals(List.of(), TestTask.stored(collection));
        }
    }

    @Test
    void whenTooMuchIsRefusedTheTaskStops() {
        server.run(
                "{collMod: '%s', validator: {x: {$exists: true}}}".formatted(name()),
                "{create: '%s'}".formatted(name()));
        String[] refused = new String[DeadLetters.ALLOWED_AT_LEAST + 1];
        for (int i = 0; i < refused.length; i++) refused[i] = "c {_id: %d}".formatted(i);
        try (TestTask sink = TestTask.opened(collection)) {
            ConnectException stopped = assertThrows(ConnectException.class, () -> sink.put(0, refused));
            assertTrue(stopped.getMessage().contains("more than towpath.refused.percent allows"), stopped::getMessage);
        }
    }

    @Test
    @Tag("nightly")
    void manyRefusalsDoNotMakeTheRestBeWrittenOverAndOver() {
        server.run(
                "{collMod: '%s', validator: {x: {$exists: true}}}".formatted(name()),
                "{create: '%s'}".formatted(name()));
        int count = 2_000;
        String[] changes = new String[count];
        for (int i = 0; i < count; i++)
            changes[i] = i % 20 == 0 ? "c {_id: %d}".formatted(i) : "c {_id: %d, x: 1}".formatted(i);
        try (TestTask sink = TestTask.opened(collection, SinkSettings.REFUSED_PERCENT, "50")) {
            long before = server.documentsInserted();
            sink.put(0, changes);
            assertEquals(count / 20, sink.context.letters.size());
            assertEquals(count - count / 20, TestTask.stored(collection).size());
            long written = server.documentsInserted() - before;
            assertTrue(written < 10 * count, "%d documents written for %d".formatted(written, count));
        }
    }

    private String name() {
        return collection.getNamespace().getCollectionName();
    }

    private static List<String> letters(TestTask sink, String header) {
        return sink.context.letters.stream().map(letter -> text(letter, header)).toList();
    }

    private static String text(SinkRecord letter, String header) {
        return new String((byte[]) letter.headers().lastWithName(header).value(), UTF_8);
    }
}
