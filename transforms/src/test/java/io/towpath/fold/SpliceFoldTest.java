package io.towpath.fold;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import io.towpath.support.Raw;
import io.towpath.support.Splices;
import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.Tuple;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Splices, one after another: as one splice, on an array in hand, and as what {@code $push} does. */
class SpliceFoldTest {
    /** What is done to an array, whatever its length: so many elements on, so many are gone, and these are in their place. */
    record Shape(int skipped, int deleted, List<byte[]> inserted) {}

    @Provide
    Arbitrary<List<byte[]>> elements() {
        return element().list().ofMaxSize(20);
    }

    @Provide
    Arbitrary<List<Shape>> shapes() {
        Arbitrary<Integer> few = Arbitraries.integers().between(0, 8);
        return Combinators.combine(few, few, element().list().ofMaxSize(3))
                .as(Shape::new)
                .list()
                .ofMinSize(1)
                .ofMaxSize(4);
    }

    @Provide
    Arbitrary<List<List<Shape>>> splices() {
        return shapes().list().ofMinSize(1).ofMaxSize(5);
    }

    /** Of every type, but mostly numbers. */
    private static Arbitrary<byte[]> element() {
        List<byte[]> all = Splices.elements(Raw.document(Raw.everyType()), 0);
        Arbitrary<byte[]> numbers = Arbitraries.integers()
                .between(0, 999)
                .map(n -> Splices.elements(Raw.document(Raw.int32("0", n)), 0).get(0));
        return Arbitraries.frequencyOf(Tuple.of(2, numbers), Tuple.of(1, Arbitraries.of(all)));
    }

    private static Splice splice(String path, int length, List<Shape> shapes) {
        List<Splice.Edit> edits = new ArrayList<>();
        int end = 0;
        for (Shape shape : shapes) {
            int at = Math.min(length, end + shape.skipped());
            int deleted = Math.min(length - at, shape.deleted());
            edits.add(Splices.edit(at, deleted, shape.inserted()));
            end = at + deleted;
        }
        return new Splice(path, length, edits);
    }

    @Property
    void splicesAreComposed(@ForAll("elements") List<byte[]> before, @ForAll("splices") List<List<Shape>> splices) {
        Splice first = splice("a.list", before.size(), splices.get(0));
        List<byte[]> after = Splices.applied(before, first);
        Elements composed = Elements.after(first);
        for (List<Shape> shapes : splices.subList(1, splices.size())) {
            Splice next = splice("a.list", after.size(), shapes);
            assertTrue(composed.takes(next));
            composed.splice(next);
            after = Splices.applied(after, next);
        }
        Splice all = composed.since(first);
        assertArrayEquals(Splices.array(after), Splices.array(Splices.applied(before, all)));
        assertEquals(after.size(), all.newLength());
        for (int i = 1; i < all.edits().size(); i++) {
            assertTrue(all.edits().get(i - 1).end() < all.edits().get(i).at(), "edits that are one");
            assertTrue(all.edits().get(i).deleted() > 0 || all.edits().get(i).inserts(), "an edit of nothing");
        }
    }

    @Property
    void aSpliceIsAppliedToADocumentInHand(
            @ForAll("elements") List<byte[]> before, @ForAll("splices") List<List<Shape>> splices) {
        Fold fold = new Fold();
        fold.document(document(before));
        List<byte[]> elements = before;
        for (List<Shape> shapes : splices) {
            Splice next = splice("a.list", elements.size(), shapes);
            fold.update(Steps.of(update(next)), 10);
            elements = Splices.applied(elements, next);
        }
        List<Fold.Part> parts = fold.parts();
        assertEquals(1, parts.size());
        Fold.Folded.Document whole =
                (Fold.Folded.Document) parts.get(0).writes().get(0);
        assertArrayEquals(document(elements), whole.bytes());
    }

    @Property
    void aPushDoesWhatItsSpliceSays(@ForAll("elements") List<byte[]> before, @ForAll("shapes") List<Shape> shapes) {
        Splice splice = splice("list", before.size(), shapes);
        Push push = Push.of(splice).orElse(null);
        if (push == null) return;
        List<byte[]> after = new ArrayList<>(before);
        int at = push.position() == null ? after.size() : push.position();
        after.addAll(at, Splices.elements(push.each(), 0));
        if (push.slice() != null) {
            int left = Math.min(after.size(), Math.abs(push.slice()));
            after = push.slice() < 0 ? after.subList(after.size() - left, after.size()) : after.subList(0, left);
        }
        assertArrayEquals(Splices.array(Splices.applied(before, splice)), Splices.array(after));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "[5, [0, 1, []], [5, 0, [9]]] | {$push: {l: {$each: [9], $slice: -5}}}",
                "[5, [5, 0, [8, 9]]] | {$push: {l: {$each: [8, 9]}}}",
                "[5, [0, 2, []]] | {$push: {l: {$each: [], $slice: -3}}}",
                "[5, [4, 1, []]] | {$push: {l: {$each: [], $slice: 4}}}",
                "[5, [2, 0, [9]], [4, 1, []]] | {$push: {l: {$each: [9], $position: 2, $slice: 5}}}",
                "[5, [0, 0, [9]]] | {$push: {l: {$each: [9], $position: 0}}}",
                "[5, [0, 2, [9]]] | {$push: {l: {$each: [9], $position: 2, $slice: -4}}}",
                "[5, [0, 5, []]] | {$push: {l: {$each: [], $slice: 0}}}",
                "[0, [0, 0, [9]]] | {$push: {l: {$each: [9]}}}",
                "[5, [2, 1, []]] | {$set: {l: {$concatArrays: [{$slice: ['$l', 0, 2]}, {$slice: ['$l', 3, 2]}]}}}",
                "[3, [0, 1, [8]], [2, 1, [9]]] | {$set: {l: {$concatArrays: [{$literal: [8]}, {$slice: ['$l', 1, 1]}, {$literal: [9]}]}}}"
            })
    void asTheServersOwnLanguageSaysIt(String splice, String expected) {
        List<Fold.Folded.Update> updates =
                Steps.of(update("{$splice: {l: %s}}".formatted(splice))).updates();
        assertEquals(1, updates.size());
        assertArrayEquals(
                BsonBytes.of(BsonDocument.parse(expected)), updates.get(0).bytes());
        assertEquals(expected.startsWith("{$set"), updates.get(0).isStage());
        assertEquals(List.of("l"), List.copyOf(updates.get(0).lengths().keySet()));
    }

    /** Update after update, and how many writes they are. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "1 | {$splice: {l: [3, [0, 1, []], [3, 0, [4]]]}} ; {$splice: {l: [3, [0, 1, []], [3, 0, [5]]]}}",
                "1 | {$splice: {l: [3, [1, 1, []]]}} ; {$set: {'l.2': 4}} ; {$set: {'l.3': 5, 'l.4': 6}}",
                "1 | {$splice: {l: [3, [1, 1, []]]}} ; {$splice: {l: [2, [1, 0, [7]]]}}",
                "1 | {$splice: {l: [3, [1, 1, []]]}} ; {$truncate: {l: 1}}",
                "1 | {$splice: {l: [3, [1, 1, []]]}} ; {$set: {l: 5}}",
                "1 | {$splice: {'a.l': [3, [1, 1, []]]}} ; {$unset: {a: ''}}",
                "1 | {$splice: {l: [3, [0, 0, [{x: 1}]]]}} ; {$set: {'l.0.x': 2}}",
                "1 | {$set: {a: {l: [1, 2]}}} ; {$splice: {'a.l': [2, [0, 1, []]]}}",
                "1 | {$set: {l: [1, 2]}} ; {$splice: {l: [2, [0, 1, []]]}}",
                "2 | {$set: {l: [1, 2]}} ; {$splice: {l: [3, [0, 1, []]]}}",
                "2 | {$set: {'l.3': 1}} ; {$splice: {l: [4, [0, 1, []]]}}",
                "2 | {$splice: {l: [3, [0, 1, []]]}} ; {$set: {'l.1.x': 1}}",
                "2 | {$splice: {l: [3, [0, 1, []]]}} ; {$splice: {l: [3, [0, 1, []]]}}",
                "2 | {$truncate: {l: 3}} ; {$splice: {l: [3, [0, 1, []]]}}",
                "2 | {$unset: {l: ''}} ; {$splice: {l: [3, [0, 1, []]]}}",
                "2 | {$splice: {l: [3, [1, 1, []]]}, $set: {a: 1}}",
                "1 | {$splice: {l: [3, [1, 1, []]], m: [3, [1, 1, []]]}}",
                "1 | {$splice: {l: [3, [0, 1, []]]}, $set: {a: 1}, $truncate: {m: 4}} ; {$set: {a: 2}}"
            })
    void asFewWritesAsSayTheSame(int writes, String updates) {
        Fold fold = new Fold();
        for (String json : updates.split(" ; ")) fold.update(Steps.of(update(json)), json.length());
        assertEquals(
                writes,
                fold.parts().stream().mapToInt(part -> part.writes().size()).sum());
    }

    @Test
    void anArrayTooLargeToOpenIsNotFolded() {
        Splice splice = new Splice("l", 16 << 20, List.of(Splices.edit(0, 1, List.of())));
        assertNull(Elements.after(splice));
        Fold fold = new Fold();
        fold.update(Steps.of(update(splice)), 10);
        fold.update(Steps.of(update(new Splice("l", splice.newLength(), splice.edits()))), 10);
        assertEquals(2, fold.parts().size());
    }

    private static byte[] document(List<byte[]> elements) {
        return Raw.document(
                Raw.int32("_id", 1),
                Raw.embedded("a", Raw.element(4, "list", Splices.array(elements)), Raw.int32("b", 1)));
    }

    private static Change.Update update(Splice splice) {
        return new Change.Update(new BsonDocument(), List.of(), List.of(), List.of(splice));
    }

    private static Change.Update update(String json) {
        return (Change.Update) Change.decode(BsonBytes.of(BsonDocument.parse(json)));
    }
}
