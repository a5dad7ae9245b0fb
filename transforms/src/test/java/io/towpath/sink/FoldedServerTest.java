package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.client.model.IndexOptions;
import io.towpath.connector.TextHeaders;
import io.towpath.record.BsonBytes;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import javax.management.ObjectName;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A folded batch on a real destination: how many writes it is, and what happens when one of them is refused. */
class FoldedServerTest extends DestinationTest {
    @Test
    void aHundredPushesAreOneWrite() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, readings: [0]}");
            sink.put(1, pushes(1, 100));
            assertEquals(2, metric("Writes"));
            assertEquals(101, metric("Records"));
        }
        BsonDocument stored = TestTask.stored(collection).get(0);
        assertEquals(101, stored.getArray("readings").size());
        assertEquals(100, stored.getArray("readings").get(100).asInt32().getValue());
    }

    @Test
    void withoutFoldingEachIsAWriteOfItsOwn() throws Exception {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, "false")) {
            sink.put(0, "c {_id: 1, readings: [0]}");
            sink.put(1, pushes(1, 100));
            assertEquals(101, metric("Writes"));
        }
    }

    /** By a default collation, "a" and "A" are one _id: the delete of the one must not come after the insert of the other. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "c {_id: 'a'} ; d {_id: 'a'} ; c {_id: 'A', n: 1}",
                "d {_id: 'b'} ; d {_id: 'b'} ; c {_id: 'B', n: 1}",
                "c {_id: {x: 'a'}} ; d {_id: {x: 'a'}} ; c {_id: {x: 'A'}, n: 1}"
            })
    void whatACollationHoldsEqualKeepsItsOrder(String changes) {
        for (String fold : List.of("false", "true")) {
            fresh();
            server.run("{create: 'sink', collation: {locale: 'en', strength: 2}}");
            try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
                sink.put(0, "c {_id: 'b'}");
                sink.put(1, changes.split(" ; "));
                assertEquals(
                        1,
                        collection.countDocuments(BsonDocument.parse("{n: 1}")),
                        "found %s".formatted(TestTask.stored(collection)));
                assertEquals(List.of(), sink.context.letters);
            }
        }
    }

    /** Writes for changes of one document that is there, apart from its insert. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "1 | u {_id: 1, $set: {a: 2}} ; u {_id: 1, $set: {a: 3}}",
                "1 | u {_id: 1, $set: {'d.x': 1}} ; u {_id: 1, $set: {d: {y: 1}}}",
                "1 | u {_id: 1, $set: {n: {y: 1}}} ; u {_id: 1, $set: {'n.z': 2}} ; u {_id: 1, $unset: {'n.y': ''}}",
                "1 | u {_id: 1, $set: {a: 2}} ; u {_id: 1, $unset: {a: ''}}",
                "1 | u {_id: 1, $truncate: {l: 3}} ; u {_id: 1, $truncate: {l: 2}}",
                "1 | u {_id: 1, $set: {n: 1}} ; u {_id: 1, $set: {o: 1}}",
                "2 | u {_id: 1, $set: {n: 1}} ; u {_id: 1, $set: {m: 1}} ; u {_id: 1, $set: {n: 2}}",
                "2 | u {_id: 1, $unset: {a: ''}} ; u {_id: 1, $set: {a: 1}} ; u {_id: 1, $set: {a: 2}}",
                "2 | u {_id: 1, $truncate: {l: 2}} ; u {_id: 1, $set: {'l.2': 9}} ; u {_id: 1, $set: {'l.3': 9}}",
                "1 | u {_id: 1, $set: {a: 2}} ; d {_id: 1} ; c {_id: 1, b: 1}",
                "1 | u {_id: 1, $set: {a: 2}} ; r {_id: 1, a: 5} ; u {_id: 1, $set: {z: 1}} ; u {_id: 1, $set: {b: 1}}",
                "3 | u {_id: 1, $truncate: {l: 2}} ; u {_id: 1, $set: {'l.2': 9, 'l.3': 9}} ; u {_id: 1, $truncate: {l: 3}}",
                "1 | u {_id: 1, $truncate: {l: 3}} ; u {_id: 1, $set: {'d.x': 9}} ; u {_id: 1, $truncate: {l: 1}}",
                "1 | r {_id: 1, l: [1, 2, 3]} ; u {_id: 1, $unset: {'l.1': '', 'l.7': '', 'l.x': '', 'm.n': ''}}",
                "1 | r {_id: 1, l: [1, 2]} ; u {_id: 1, $set: {'l.4': 5}} ; u {_id: 1, $set: {'l.5.x': 1}, $truncate: {m: 0}}",
                "1 | r {_id: 1, l: [1, 2]} ; u {_id: 1, $set: {'l.2.x': 1}} ; u {_id: 1, $truncate: {'l.2.y': 5}}",
                "1 | u {_id: 1, $set: {a: 2}} ; d {_id: 1}"
            })
    void asFewWritesAsSayTheSame(int writes, String changes) throws Exception {
        String first = "c {_id: 1, a: 1, d: {x: 0}, l: [1, 2, 3, 4, 5]}";
        String[] all = changes.split(" ; ");
        List<BsonDocument> oneByOne;
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, "false")) {
            sink.put(0, first);
            for (int i = 0; i < all.length; i++) sink.put(1 + i, all[i]);
            oneByOne = TestTask.stored(collection);
        }
        fresh();
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, first);
            sink.put(1, all);
            assertEquals(writes, metric("Writes") - 1);
        }
        List<BsonDocument> folded = TestTask.stored(collection);
        assertEquals(oneByOne.size(), folded.size());
        for (int i = 0; i < folded.size(); i++)
            assertArrayEquals(BsonBytes.of(oneByOne.get(i)), BsonBytes.of(folded.get(i)));
    }

    @Test
    void ofARefusedFoldExactlyTheRefusedRecordIsSetAside() {
        server.run("{collMod: 'sink', validator: {n: {$not: {$gt: 5}}}}", "{create: 'sink'}");
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, n: 1}", "c {_id: 2, n: 1}");
            sink.put(
                    2,
                    "u {_id: 1, $set: {n: 2}}",
                    "u {_id: 1, $set: {n: 9, o: 9}}",
                    "u {_id: 2, $set: {n: 3}}",
                    "u {_id: 1, $set: {p: 1}}",
                    "u {_id: 2, $set: {n: 4}}");
            assertEquals(TestTask.documents("{_id: 1, n: 2, p: 1}", "{_id: 2, n: 4}"), TestTask.stored(collection));
            assertEquals(
                    List.of("3"),
                    sink.context.letters.stream()
                            .map(letter -> TextHeaders.read(letter, "offset").orElseThrow())
                            .toList());
        }
    }

    @Test
    void valuesThatAreSwappedGoInTheSourcesOrder() {
        collection.createIndex(BsonDocument.parse("{u: 1}"), new IndexOptions().unique(true));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, u: 1}", "c {_id: 2, u: 2}");
            sink.put(2, "u {_id: 1, $set: {u: 0}}", "u {_id: 2, $set: {u: 1}}", "u {_id: 1, $set: {u: 2}}");
            assertEquals(TestTask.documents("{_id: 1, u: 2}", "{_id: 2, u: 1}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void whatIsInsertedAndDeletedInOneBatchIsNoMissingDocument() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}", "u {_id: 1, $set: {a: 1}}", "d {_id: 1}", "c {_id: 2}");
            assertEquals(0, metric("WithoutDocument"));
            assertEquals(2, metric("Writes"));
        }
        assertEquals(TestTask.documents("{_id: 2}"), TestTask.stored(collection));
    }

    @Test
    void aFoldedInsertReplacesWhatTheDestinationHeldBefore() {
        collection.insertMany(TestTask.documents("{_id: 1, old: 1}", "{_id: 2, old: 1}").stream()
                .map(document -> new RawBsonDocument(BsonBytes.of(document)))
                .toList());
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1}", "u {_id: 1, $set: {a: 1}}", "c {_id: 2}", "d {_id: 2}");
            assertEquals(TestTask.documents("{_id: 1, a: 1}"), TestTask.stored(collection));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    @Test
    void manyPlacesOfOneDocumentAreSeveralWrites() throws Exception {
        List<SinkRecord> records = new ArrayList<>();
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, readings: [0]}");
            records.addAll(sink.records(1, pushes(1, 2_500)));
            sink.task.put(records);
            assertEquals(1 + 3, metric("Writes"));
        }
        assertEquals(
                2_501, TestTask.stored(collection).get(0).getArray("readings").size());
    }

    private static String[] pushes(int from, int count) {
        return IntStream.range(from, from + count)
                .mapToObj("u {_id: 1, $set: {'readings.%1$d': %1$d}}"::formatted)
                .toArray(String[]::new);
    }

    private static long metric(String name) throws Exception {
        ObjectName bean =
                new ObjectName("io.towpath:type=sink,connector=%1$s,task=0,pipeline=%1$s".formatted(TestTask.PIPELINE));
        return (long) ManagementFactory.getPlatformMBeanServer().getAttribute(bean, name);
    }
}
