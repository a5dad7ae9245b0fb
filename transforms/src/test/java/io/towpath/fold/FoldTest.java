package io.towpath.fold;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.support.LogModel;
import io.towpath.support.Raw;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The folded writes, as a server applies them, leave the bytes that the changes leave one by one. */
class FoldTest {
    @Provide
    Arbitrary<List<Histories.Attempt>> attempts() {
        return Histories.attempts();
    }

    @Property
    void theSameBytes(@ForAll("attempts") List<Histories.Attempt> attempts, @ForAll boolean isKnown) {
        assertFolds(Histories.first(), Histories.values(attempts, isKnown));
    }

    /** Returns how many writes there are. */
    private static int assertFolds(byte[] before, List<byte[]> values) {
        LogModel expected = new LogModel();
        expected.apply(before);
        Fold fold = new Fold();
        for (byte[] value : values) {
            expected.apply(value);
            Change change = Change.decode(value);
            if (change instanceof Change.Update update) fold.update(Steps.of(update), value.length);
            else if (change instanceof Change.Document) fold.document(value);
            else fold.delete();
        }
        byte[] after = before;
        int next = 0;
        int writes = 0;
        for (Fold.Part part : fold.parts()) {
            if (next == 0) next = part.first();
            assertEquals(next, part.first(), "no change is left out");
            next += part.changes();
            for (Fold.Folded write : part.writes()) {
                writes++;
                after = written(after, write, values);
            }
        }
        if (!values.isEmpty()) assertEquals(values.size(), next);
        byte[] left = after;
        assertArrayEquals(expected.bytes(), after, () -> "%s instead of %s, by %s"
                .formatted(text(left), expected.document(), fold.parts()));
        return writes;
    }

    private static byte[] written(byte[] before, Fold.Folded write, List<byte[]> values) {
        if (write instanceof Fold.Folded.Document document) return document.bytes();
        if (write instanceof Fold.Folded.Delete) return null;
        if (write instanceof Fold.Folded.Alone alone) return alone(before, values.get(alone.change()));
        assertNotNull(before, "an update of no document");
        ServerModel server = new ServerModel(before);
        server.apply((Fold.Folded.Update) write);
        return BsonBytes.of(server.document());
    }

    /** With operators where they are said to do it. */
    private static byte[] alone(byte[] before, byte[] value) {
        LogModel expected = new LogModel();
        expected.apply(before);
        expected.apply(value);
        Steps steps = Steps.of((Change.Update) Change.decode(value));
        if (steps.areOperators()) {
            ServerModel server = new ServerModel(before);
            steps.updates().forEach(server::apply);
            assertEquals(expected.document(), server.document());
            assertArrayEquals(expected.bytes(), BsonBytes.of(server.document()));
        }
        return expected.bytes();
    }

    @Property
    void anUpdateIsWrittenWithOperatorsOnlyWhereTheyDoTheSame(@ForAll("attempts") List<Histories.Attempt> attempts) {
        byte[] document = Histories.first();
        for (byte[] value : Histories.values(attempts, false)) {
            boolean isUpdate = Change.decode(value) instanceof Change.Update;
            document = isUpdate ? alone(document, value) : value;
        }
    }

    /** Updates, one after another, and how many writes they are: with one more each costs the server as much as before. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "1 | {$set: {z: 1}} ; {$set: {z: 2}}",
                "1 | {$set: {x: {b: 1}}} ; {$set: {'x.b': 2, 'x.a': 3}}",
                "1 | {$set: {b: 1}} ; {$set: {c: 1}}",
                "2 | {$set: {c: 1}} ; {$set: {b: 1}}",
                "2 | {$set: {'10': 1}} ; {$set: {'9': 1}}",
                "1 | {$set: {'9': 1}} ; {$set: {'10': 1}}",
                "1 | {$set: {'a.z': 1}} ; {$set: {b: 1}}",
                "2 | {$unset: {z: ''}} ; {$set: {z: 1}}",
                "1 | {$set: {z: 1}} ; {$unset: {z: ''}}",
                "1 | {$set: {z: 1}} ; {$unset: {z: ''}} ; {$set: {a: 1}}",
                "1 | {$set: {z: 1}} ; {$truncate: {l: 1}} ; {$set: {l: 5}}",
                "2 | {$set: {'m.10': 1}} ; {$truncate: {m: 2}} ; {$truncate: {m: 1}}",
                "2 | {$unset: {z: '', m: ''}} ; {$set: {m: 1}} ; {$set: {z: 2}}",
                "1 | {$truncate: {l: 3}} ; {$truncate: {l: 1}}",
                "1 | {$truncate: {l: 3}} ; {$truncate: {l: 3}}",
                "2 | {$truncate: {l: 3}} ; {$set: {'l.0.a': 5, 'l.2': [6]}} ; {$truncate: {l: 1}}",
                "1 | {$truncate: {l: 3}} ; {$set: {'l.2': 6}} ; {$truncate: {l: 2}}",
                "3 | {$truncate: {l: 1}} ; {$set: {'l.1': 8, 'l.2': 9}} ; {$truncate: {l: 2}}",
                "1 | {$truncate: {l: 1}} ; {$set: {l: 7}}",
                "1 | {$truncate: {l: 1}} ; {$unset: {l: ''}}",
                "1 | {$set: {l: [1, 2, 3]}} ; {$truncate: {l: 1}}",
                "1 | {$set: {l: [1, 2, 3]}} ; {$truncate: {l: 3}}",
                "1 | {$set: {'a.b': {l: [1, {x: 1}]}}} ; {$set: {'a.b.l.1.x': 2}} ; {$unset: {'a.b.l.1.x': ''}}",
                "2 | {$truncate: {l: 3, 'a.l': 2}, $set: {'l.1': 4}}",
                "2 | {$set: {d: 1, c: 1}}",
                "4 | {$set: {f: 1, e: 1, d: 1, c: 1}}",
                "1 | {$set: {g: 1, f: 1, e: 1, d: 1, c: 1}}",
                "5 | {$set: {g: 1, f: 1, e: 1, d: 1, c: 1}} ; {$set: {h: 1}}",
                "2 | {$set: {h: 1, g: 1, f: 1, e: 1, d: 1, c: 1}} ; {$set: {i: 1}} ; {$set: {j: 1}}"
            })
    void asFewWritesAsLeaveTheSameBytes(int writes, String updates) {
        List<byte[]> values =
                Stream.of(updates.split(" ; ")).map(FoldTest::bytes).toList();
        assertEquals(writes, assertFolds(Histories.first(), values));
    }

    /** What no source says of such a document: the server shall refuse it, or do what it does, and folding shall not guess. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{_id: 1, l: [1]} | {$set: {'l.x': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.-1': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.01': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l./': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.:': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.100000000': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.1500001': 2}}",
                "{_id: 1, l: [1]} | {$set: {'l.x.y': 2}}",
                "{_id: 1, a: 5} | {$set: {'a.b': 2}}",
                "{_id: 1, a: 5} | {$truncate: {'a.b': 2}}",
                "{_id: 1} | {$set: {_id: 2}}",
                "{_id: 1} | {$set: {'_id.a': 2}}",
                "{_id: 1, l: {}} | {$truncate: {l: 1}}",
                "{_id: 1, l: {}} | {$splice: {l: [1, [0, 1, []]]}}",
                "{_id: 1} | {$splice: {l: [1, [0, 1, []]]}}",
                "{_id: 1} | {$splice: {'a.l': [1, [0, 1, []]]}}",
                "{_id: 1, l: [1]} | {$splice: {l: [2, [0, 1, []]]}}",
                "{_id: 1} | {$truncate: {l: 1}, $set: {'l.0': 2}}",
                "{_id: 1, a: {}} | {$truncate: {'a.l': 1}, $set: {'a.l.0': 2}}",
                "{_id: 1, a: 5} | {$truncate: {'a.l': 1}, $set: {'a.l.0': 2}}",
                "{_id: 1, a: 1} | {$set: {a: {}, 'a.b': 1}}",
                "{_id: 1} | {$set: {'': {}, '.a': 1}}",
                "{_id: 1, l: [1]} | {$truncate: {l: 0, 'l.0': 0}}",
                "{_id: 1, l: [1]} | {$truncate: {l: 0}, $set: {l: 1}}"
            })
    void whatTheDocumentDoesNotAllowIsLeftToTheServer(String document, String update) {
        assertEquals(2, parts(BsonBytes.of(BsonDocument.parse(document)), update));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {l: [1]}} ; {$set: {'l.x': 2}}",
                "{$set: {l: [1]}} ; {$splice: {l: [2, [0, 1, []]]}}",
                "{$set: {l: [1]}} ; {$truncate: {l: 0, 'l.0': 0}}",
                "{$set: {l: 5}} ; {$truncate: {l: 1}}",
                "{$set: {l: {}}} ; {$truncate: {l: 1}}",
                "{$set: {l: {}}} ; {$splice: {l: [2, [0, 1, []]]}}",
                "{$set: {a: 5}} ; {$set: {'a.b': 1}}",
                "{$set: {a: 5}} ; {$set: {$x: 1}}",
                "{$unset: {a: ''}} ; {$set: {'a.b': 1}}",
                "{$unset: {l: ''}} ; {$truncate: {l: 1}}",
                "{$truncate: {l: 2}} ; {$splice: {l: [2, [0, 1, []]]}}",
                "{$truncate: {l: 2}} ; {$set: {'l.': 1}}"
            })
    void whatThePlaceDoesNotAllowAfterAnUpdateIsNotMergedIntoIt(String updates) {
        assertEquals(2, parts(null, updates.split(" ; ")));
    }

    @Test
    void aDocumentThatNoOperatorUnderstandsIsLeftToTheServer() {
        byte[] twice = Raw.document(Raw.int32("_id", 1), Raw.int32("a", 1), Raw.int32("a", 2));
        assertEquals(2, parts(twice, "{$set: {b: 1}}"));
        byte[] inside = Raw.document(Raw.int32("_id", 1), Raw.embedded("a", Raw.int32("b", 1), Raw.int32("b", 2)));
        assertEquals(1, parts(inside, "{$set: {b: 1}}"));
        assertEquals(2, parts(inside, "{$set: {'a.c': 1}}"));
        byte[] misnamed = Raw.document(Raw.int32("_id", 1), Raw.array("l", Raw.int32("0", 1), Raw.int32("5", 2)));
        assertEquals(2, parts(misnamed, "{$set: {'l.1': 1}}"));
        byte[] damaged = Raw.document(Raw.int32("_id", 1), Raw.element(3, "a", new byte[] {9, 0, 0, 0, 2, 2, 2, 2, 0}));
        assertEquals(2, parts(damaged, "{$set: {'a.b': 1}}"));
    }

    /** These the server does as told, even where the source would not have said it. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{_id: 1} | {$set: {'a.b.c': 1}} | {_id: 1, a: {b: {c: 1}}}",
                "{_id: 1, a: 5} | {$unset: {'a.b': ''}} | {_id: 1, a: 5}",
                "{_id: 1} | {$unset: {'a.b': '', c: ''}} | {_id: 1}",
                "{_id: 1, l: [1, 2]} | {$unset: {'l.0': '', 'l.2': ''}} | {_id: 1, l: [null, 2]}",
                "{_id: 1, a: {}} | {$truncate: {'a.l': 1}} | {_id: 1, a: {l: []}}",
                "{_id: 1, l: [1]} | {$set: {'l.3': 2}} | {_id: 1, l: [1, null, null, 2]}",
                "{_id: 1, l: []} | {$set: {'l.9': 2}} | {_id: 1, l: [null, null, null, null, null, null, null, null, null, 2]}",
                "{_id: 1, l: [1, 2]} | {$truncate: {l: 2}} | {_id: 1, l: [1, 2]}",
                "{_id: 1, l: [1, 2]} | {$truncate: {l: 1}, $set: {'l.0': 2}} | {_id: 1, l: [2]}"
            })
    void aDocumentInHandTakesWhatTheServerWouldDo(String document, String update, String expected) {
        Fold fold = new Fold();
        fold.document(BsonBytes.of(BsonDocument.parse(document)));
        fold.update(steps(update), 1);
        Fold.Folded.Document whole = assertInstanceOf(
                Fold.Folded.Document.class, fold.parts().get(0).writes().get(0));
        assertEquals(1, fold.parts().size());
        assertArrayEquals(BsonBytes.of(BsonDocument.parse(expected)), whole.bytes());
    }

    @Test
    void anUpdateOfAnElementThatItFillsWithNullItselfStaysAlone() {
        byte[] document = bytes("{_id: 1, a: [], b: [1]}");
        assertEquals(1, parts(document, "{$set: {'b.1': 1}}", "{$set: {'a.0.x': 1}}"));
        assertEquals(2, parts(document, "{$set: {'b.1': 1}}", "{$truncate: {'a.2.x': 1}, $set: {'a.0.x': 1}}"));
        Fold fold = new Fold();
        fold.document(document);
        fold.update(steps("{$set: {'b.1': 2}}"), 1);
        fold.update(steps("{$truncate: {'a.2.x': 1}, $set: {'a.0.x': 1}}"), 1);
        assertEquals(
                "{\"_id\": 1, \"a\": [], \"b\": [1, 2]}",
                text(((Fold.Folded.Document) fold.parts().get(0).writes().get(0)).bytes()));
    }

    @Test
    void theServerFillsNoLargerGap() {
        Elements array = Elements.open(new Slice((byte) 4, Raw.document(Raw.int32("0", 1)), 0, 12));
        assertTrue(array.accepts("0"));
        assertTrue(array.accepts("1500000"));
        assertFalse(array.accepts("1500001"));
    }

    /** Larger updates cost the server more than several. */
    @Test
    void aMergedUpdateHasBounds() {
        assertEquals(1, sized(500, 1, 500, 1));
        assertEquals(2, sized(500, 1, 501, 1));
        assertEquals(1, sized(1_001, 1), "it came so");
        assertEquals(1, sized(1, 4 << 20, 1, 4 << 20));
        assertEquals(2, sized(1, 4 << 20, 1, (4 << 20) + 1));
        assertEquals(2, sized(1, 4 << 20, 1, 4 << 20, 1, 1));
        assertEquals(1, sized(1, 9 << 20));
    }

    /** In turn how many places an update has, and how many bytes. */
    private static int sized(int... sizes) {
        Fold fold = new Fold();
        for (int i = 0; i < sizes.length; i += 2) {
            BsonDocument set = new BsonDocument();
            for (int place = 0; place < sizes[i]; place++) set.append("p%d%04d".formatted(i, place), new BsonInt32(1));
            fold.update(Steps.of(new Change.Update(set, List.of(), List.of())), sizes[i + 1]);
        }
        return fold.parts().size();
    }

    /** Where merging would need more writes than there are changes, each change is written alone. */
    @Test
    void mergingThatCostsMoreThanItSavesIsGivenUp() {
        Fold fold = new Fold();
        fold.delete();
        fold.update(steps("{$set: {d: 1, c: 1, b: 1}}"), 1);
        fold.update(steps("{$set: {'a.d': 1, 'a.c': 1, 'a.b': 1}}"), 1);
        assertEquals(5, fold.parts().get(1).writes().size());
        fold.update(steps("{$set: {'a.a': 1, '9': 1}}"), 1);
        assertEquals(6, fold.parts().get(1).writes().size());
        fold.update(steps("{$set: {'8': 1, '7': 1}}"), 1);
        assertEquals(
                IntStream.rangeClosed(1, 4).mapToObj(Fold.Folded.Alone::new).toList(),
                fold.parts().get(1).writes());
    }

    private static int parts(byte[] document, String... updates) {
        Fold fold = new Fold();
        if (document != null) fold.document(document);
        for (String update : updates) fold.update(steps(update), 1);
        return fold.parts().size();
    }

    private static Steps steps(String json) {
        return Steps.of((Change.Update) Change.decode(bytes(json)));
    }

    private static byte[] bytes(String json) {
        return BsonBytes.of(BsonDocument.parse(json));
    }

    private static String text(byte[] document) {
        return document == null ? "none" : ServerModel.decoded(document).toJson();
    }
}
