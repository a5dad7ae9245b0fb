package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.IndexOptions;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;

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
            assertEquals("u", text(letter, "op"));
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

    private static String text(SinkRecord letter, String header) {
        return new String((byte[]) letter.headers().lastWithName(header).value(), UTF_8);
    }
}
