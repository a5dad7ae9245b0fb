package io.towpath.source.splice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.support.Raw;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.management.ObjectName;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SplicerTest {
    private static final int LENGTH = 1_000;
    private static final long ROOM = 8 << 20;

    private final SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
    private final SpliceTotals totals = new SpliceTotals(null);
    private final Splicer splicer = new Splicer(ROOM, metrics, totals);
    private final BsonArray array = numbered(LENGTH);

    @AfterEach
    void close() {
        metrics.close();
    }

    private static BsonArray numbered(int length) {
        return new BsonArray(
                IntStream.range(0, length).mapToObj(SplicerTest::element).toList());
    }

    /** About 100 bytes. */
    private static BsonValue element(int number) {
        return new BsonString("%090d".formatted(number));
    }

    private static BsonDocument set(String path, BsonValue value) {
        return new BsonDocument("$set", new BsonDocument(path, value));
    }

    private SourceRecord apply(BsonDocument value) {
        return splicer.applyTo(Records.record(Records.key(1), BsonBytes.of(value)));
    }

    private List<Splice> splices(BsonDocument value) {
        return ((Change.Update) Change.decode((byte[]) apply(value).value())).splices();
    }

    private void isWhole(BsonDocument value) {
        assertEquals(List.of(), splices(value));
    }

    private static byte[] inserted(BsonValue... values) {
        return BsonBytes.of(new BsonDocument("a", new BsonArray(List.of(values)))
                .getArray("a").getValues().stream()
                        .collect(
                                BsonDocument::new,
                                (into, value) -> into.append("" + into.size(), value),
                                (a, b) -> {}));
    }

    @Test
    void aPushIntoACappedArrayIsASmallSplice() {
        isWhole(set("a.list", array));
        array.remove(0);
        array.add(element(-1));
        SourceRecord record = apply(set("a.list", array));
        Change.Update update = (Change.Update) Change.decode((byte[]) record.value());
        Splice expected = new Splice(
                "a.list",
                LENGTH,
                List.of(new Splice.Edit(0, 1, inserted()), new Splice.Edit(LENGTH, 0, inserted(element(-1)))));
        assertEquals(List.of(expected), update.splices());
        assertTrue(update.set().isEmpty());
        int size = ((byte[]) record.value()).length;
        assertTrue(size < 250, () -> "%d bytes".formatted(size));
    }

    @Test
    void whatElseAnUpdateSaysStaysAsItIs() {
        isWhole(set("list", array));
        array.remove(0);
        BsonDocument set = new BsonDocument("count", new BsonInt32(1))
                .append("list", array)
                .append("z", new BsonString("z"));
        BsonDocument value = new BsonDocument("$set", set)
                .append("$unset", new BsonDocument("gone", new BsonString("")))
                .append("$truncate", new BsonDocument("other", new BsonInt32(3)));
        byte[] emitted = (byte[]) apply(value).value();
        set.remove("list");
        BsonDocument splice = BsonDocument.parse("{list: [%d, [0, 1, []]]}".formatted(LENGTH));
        assertArrayEquals(BsonBytes.of(value.append("$splice", splice)), emitted);
    }

    @Test
    void aDocumentADeleteAndALostRecordAreForgotten() {
        BsonDocument value = set("list", array);
        List<SourceRecord> resets = List.of(
                Records.record(Records.key(1), Raw.document(Raw.int32("_id", 1))),
                Records.record(Records.key(1), null),
                Records.record(Records.key(1), BsonBytes.of(BsonDocument.parse("{$splice: {list: [3, [0, 1, []]]}}"))));
        isWhole(value);
        for (SourceRecord reset : resets) {
            assertSame(reset, splicer.applyTo(reset));
            isWhole(value);
        }
        splicer.forget(resets.get(0));
        array.remove(0);
        isWhole(value);
        array.remove(0);
        assertEquals(1, splices(value).size(), "another set is remembered again");
    }

    @Test
    void documentsAndTopicsAreApart() {
        isWhole(set("list", array));
        array.remove(0);
        byte[] value = BsonBytes.of(set("list", array));
        SourceRecord other = Records.record(Records.key(2), value);
        assertSame(other, splicer.applyTo(other));
        SourceRecord elsewhere = Records.record("p.shop.others", Records.key(1), value);
        assertSame(elsewhere, splicer.applyTo(elsewhere));
        assertEquals(1, splices(set("list", array)).size());
    }

    @ParameterizedTest
    @ValueSource(strings = {"list.0", "0", "2024.list", "a..list", ".list", "list.", "$list", "a.$list", ""})
    void aPathThatCouldMeanAnotherPlaceIsSetAsBefore(String path) {
        isWhole(set(path, array));
        array.remove(0);
        isWhole(set(path, array));
    }

    @Test
    void aNameThatIsNotUtf8IsSetAsBefore() {
        byte[] name = {(byte) 0xC3, 0x28};
        for (int length = 30; length > 27; length--) {
            byte[] list = inserted(numbered(length).toArray(BsonValue[]::new));
            byte[] set = BsonBytes.ofField((byte) 4, name, list, 0, list.length);
            SourceRecord record = Records.record(Records.key(1), Raw.document(Raw.element(3, "$set", set)));
            assertSame(record, splicer.applyTo(record));
        }
    }

    /** The server does not look at the names of elements, but a copy has the same bytes. */
    @Test
    void anArrayWithOddNamesIsSetAsBefore() {
        byte[] text = "x".repeat(300).getBytes();
        for (String third : new String[] {"02", "3", "x", "", "22"}) {
            for (int last = 0; last < 2; last++) {
                byte[] list = Raw.array(
                        "list",
                        Raw.string("0", new String(text)),
                        Raw.string("1", new String(text)),
                        Raw.string(third, new String(text)),
                        Raw.int32("3", last));
                SourceRecord record =
                        Records.record(Records.key(1), Raw.document(Raw.element(3, "$set", Raw.document(list))));
                assertSame(record, splicer.applyTo(record));
            }
        }
    }

    /** The server renames the elements of an array that is within one that it puts together from parts. */
    @Test
    void anArrayWithOddNamesWithinIsSetAsBefore() {
        for (String name : new String[] {"0", "1"}) {
            SourceRecord first = withInner(name, "y");
            SourceRecord second = withInner(name, "z");
            assertSame(first, splicer.applyTo(first));
            assertEquals(name.equals("1"), splicer.applyTo(second) == second);
        }
    }

    /** mongod 6.0 aborts on the pipeline that puts such an array together. */
    @Test
    void anArrayWithANameTwiceWithinIsSetAsBefore() {
        byte[] pad = Raw.string("0", "x".repeat(900));
        byte[] twice = Raw.embedded("1", Raw.embedded("in", Raw.int32("a", 1), Raw.int32("b", 1), Raw.int32("a", 1)));
        byte[] once = Raw.embedded("1", Raw.embedded("in", Raw.int32("a", 1), Raw.int32("b", 1)));
        assertTrue(isSpliced(Raw.array("l", pad, once), Raw.array("l", pad, once, Raw.int32("2", 1))));
        assertFalse(isSpliced(Raw.array("l", pad, twice), Raw.array("l", pad, once)));
        assertFalse(isSpliced(Raw.array("l", pad, once), Raw.array("l", pad, once, twice)));
        // of an array that is remembered, an element, a new one, and a part of one
        for (String path : List.of("l.1", "l.2", "l.1.c")) {
            assertFalse(isSpliced(Raw.array("l", pad, once)));
            assertFalse(isSpliced(Raw.element(3, path, Raw.document(Raw.int32("a", 1), Raw.int32("a", 2)))));
            assertFalse(isSpliced(Raw.array("l", pad, once)), path);
            assertFalse(isSpliced(Raw.element(3, path, Raw.document(Raw.int32("a", 1)))));
            assertTrue(isSpliced(Raw.array("l", pad, once)), path);
            splicer.forgetAll(Records.record(Records.key(1), null).topic());
        }
    }

    /** Names that look alike, the empty one, and more than have separate hashes. */
    @Test
    void onlyEqualNamesAreTheSame() {
        byte[] pad = Raw.string("0", "x".repeat(3_000));
        byte[][] many = new byte[100][];
        for (int index = 0; index < many.length; index++) many[index] = Raw.int32("n%dn".formatted(index), 1);
        byte[][] last = many.clone();
        last[99] = Raw.string("n40n", "of another type");
        byte[][] early = many.clone();
        early[20] = Raw.int32("n3n", 1);
        List<byte[]> different = List.of(
                Raw.embedded("1", Raw.int32("abc", 1), Raw.int32("adc", 1), Raw.int32("", 1), Raw.int32("a", 1)),
                Raw.embedded("1", many));
        List<byte[]> twice = List.of(
                Raw.embedded("1", Raw.int32("", 1), Raw.string("", "of another type")),
                Raw.embedded("1", early),
                Raw.embedded("1", last));
        byte[] once = Raw.embedded("1", Raw.int32("a", 1));
        for (byte[] element : different) assertTrue(isSpliced(Raw.array("l", pad, once), Raw.array("l", pad, element)));
        for (byte[] element : twice) assertFalse(isSpliced(Raw.array("l", pad, once), Raw.array("l", pad, element)));
    }

    /** Whether the last of these, each set by a separate update, is a splice. */
    private boolean isSpliced(byte[]... fields) {
        boolean isSpliced = false;
        for (byte[] field : fields) {
            SourceRecord record =
                    Records.record(Records.key(1), Raw.document(Raw.element(3, "$set", Raw.document(field))));
            isSpliced = splicer.applyTo(record) != record;
        }
        if (fields.length > 1)
            splicer.forgetAll(Records.record(Records.key(1), null).topic());
        return isSpliced;
    }

    private static SourceRecord withInner(String name, String last) {
        byte[] inner = Raw.embedded("1", Raw.array("in", Raw.int32(name, 1)));
        byte[] list = Raw.array("list", Raw.string("0", "x".repeat(900)), inner, Raw.string("2", last));
        return Records.record(Records.key(1), Raw.document(Raw.element(3, "$set", Raw.document(list))));
    }

    @Test
    void anArrayThatIsAsItWasIsASpliceToo() {
        isWhole(set("list", array));
        Splice splice = splices(set("list", array)).get(0);
        assertEquals(LENGTH, splice.newLength());
        assertEquals(List.of(new Splice.Edit(0, 0, inserted())), splice.edits());
    }

    @Test
    void theTypeOfAnElementCounts() {
        array.set(5, new BsonBinary((byte) 0, new byte[0]));
        isWhole(set("list", array));
        array.set(5, new BsonString(""));
        assertEquals(
                List.of(new Splice.Edit(5, 1, inserted(new BsonString("")))),
                splices(set("list", array)).get(0).edits());
    }

    @Test
    void elementsThatWereSetAreKnown() {
        isWhole(set("list", array));
        isWhole(set("list.7", element(-7)));
        isWhole(set("list." + LENGTH, element(-1)));
        array.set(7, element(-7));
        array.add(element(-1));
        array.remove(0);
        assertEquals(
                List.of(new Splice("list", LENGTH + 1, List.of(new Splice.Edit(0, 1, inserted())))),
                splices(set("list", array)));
    }

    @Test
    void anElementThatChangedWithinIsSentAgain() {
        isWhole(set("list", array));
        isWhole(set("list.7.x", element(-7)));
        array.remove(0);
        assertEquals(
                List.of(new Splice.Edit(0, 1, inserted()), new Splice.Edit(7, 1, inserted(element(7)))),
                splices(set("list", array)).get(0).edits());
    }

    @Test
    void aCutArrayIsKnown() {
        isWhole(set("list", array));
        isWhole(BsonDocument.parse("{$truncate: {list: 500}}"));
        BsonArray half = new BsonArray(array.subList(1, 500));
        assertEquals(
                List.of(new Splice("list", 500, List.of(new Splice.Edit(0, 1, inserted())))),
                splices(set("list", half)));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {a: {list: []}}}",
                "{$set: {'a.list': 1}}",
                "{$unset: {'a.list': ''}}",
                "{$unset: {a: ''}}",
                "{$truncate: {a: 1}}",
                "{$truncate: {'a.list': 1001}}",
                "{$set: {'a.list.1001': 1}}",
                "{$set: {'a.list.1000.x': 1}}",
                "{$set: {'a.list.x': 1}}",
                "{$set: {'a.list.01': 1}}",
                "{$unset: {'a.list.1000': ''}}",
                "{$set: {'a.list': [1, 2]}}"
            })
    void whatLeavesAnArrayUnknownIsForgotten(String update) {
        isWhole(set("a.list", array));
        isWhole(BsonDocument.parse(update));
        array.remove(0);
        isWhole(set("a.list", array));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{$set: {'a.listing': 1, b: {list: 1}, 'a.lis': 1, list: 1}}",
                "{$unset: {'a.l': '', 'b.a.list': ''}}",
                "{$truncate: {'a.lists': 1}}"
            })
    void otherPlacesDoNotMatter(String update) {
        isWhole(set("a.list", array));
        isWhole(BsonDocument.parse(update));
        array.remove(0);
        assertEquals(1, splices(set("a.list", array)).size());
    }

    @Test
    void anotherArrayIsSetWhole() {
        isWhole(set("list", array));
        isWhole(set(
                "list",
                new BsonArray(
                        array.stream().map(value -> element(-value.hashCode())).toList())));
    }

    @Test
    void withoutRoomRecordsAreTheSame() {
        Splicer off = new Splicer(0, metrics, totals);
        for (int i = 0; i < 3; i++) {
            array.remove(0);
            SourceRecord record = Records.record(Records.key(1), BsonBytes.of(set("list", array)));
            assertSame(record, off.applyTo(record));
            off.forget(record);
        }
        assertTrue(totals.dueOffset(0).isEmpty());
    }

    @Test
    void countsAreInTheMetricsAndInAnOffset() throws Exception {
        isWhole(set("list", array));
        assertTrue(totals.dueOffset(0).isEmpty(), "nothing to tell");
        array.remove(0);
        BsonDocument value = set("list", array);
        int before = BsonBytes.of(value).length;
        long saved = before - ((byte[]) apply(value).value()).length;
        assertEquals(1L, attribute("Splices"));
        assertEquals(saved, attribute("SpliceBytesSaved"));
        assertEquals(0L, attribute("SpliceCacheDropped"));
        assertTrue((long) attribute("SpliceCacheBytes") > 16 * LENGTH);
        Map<String, Object> offset = totals.dueOffset(-1).orElseThrow();
        assertEquals(Map.of("splices", 1L, "saved", saved, "dropped", 0L), offset);
        array.remove(0);
        apply(set("list", array));
        assertTrue(totals.dueOffset(4_900_000_000L).isEmpty());
        assertEquals(2L, totals.dueOffset(5_000_000_000L).orElseThrow().get("splices"));
        assertTrue(totals.dueOffset(20_000_000_000L).isEmpty());

        SpliceTotals later = new SpliceTotals(Map.of("splices", 7, "saved", saved, "dropped", 4L));
        Splicer small = new Splicer(17_000, metrics, later);
        for (int id = 0; id < 3; id++) small.applyTo(Records.record(Records.key(id), BsonBytes.of(set("list", array))));
        assertEquals(
                Map.of("splices", 7L, "saved", saved, "dropped", 6L),
                later.dueOffset(0).orElseThrow());
    }

    private static Object attribute(String name) throws Exception {
        ObjectName bean = new ObjectName("io.towpath:type=source,connector=p-source,task=0,pipeline=p,prefix=p");
        return ManagementFactory.getPlatformMBeanServer().getAttribute(bean, name);
    }

    @Test
    void whatChangedLongestAgoIsDropped() {
        ArrayCache cache = new ArrayCache(40_000);
        List<DocumentKey> keys = IntStream.range(0, 4)
                .mapToObj(id -> new DocumentKey("t", Records.key(id)))
                .toList();
        UpdateParts update = UpdateParts.of(BsonBytes.of(set("list", array))).orElseThrow();
        for (int id : new int[] {0, 1, 0, 2}) {
            DocumentArrays arrays = cache.get(keys.get(id)).orElseGet(() -> new DocumentArrays(new ElementHasher()));
            arrays.apply(update);
            cache.put(keys.get(id), arrays);
        }
        assertEquals(
                List.of(true, false, true, false),
                keys.stream().map(key -> cache.get(key).isPresent()).toList());
        assertEquals(1, cache.dropped());
        keys.forEach(cache::forget);
        assertEquals(0, cache.bytes());
    }

    @Test
    void anArrayThatIsTooLargeByItselfDropsNoOther() {
        ArrayCache cache = new ArrayCache(20_000);
        DocumentKey small = new DocumentKey("t", Records.key(1));
        DocumentKey large = new DocumentKey("t", Records.key(2));
        for (DocumentKey key : List.of(small, large)) {
            DocumentArrays arrays = new DocumentArrays(new ElementHasher());
            arrays.apply(UpdateParts.of(BsonBytes.of(set("list", key == small ? array : numbered(1_300))))
                    .orElseThrow());
            cache.put(key, arrays);
        }
        assertTrue(cache.get(small).isPresent());
        assertTrue(cache.get(large).isEmpty());
        assertEquals(1, cache.dropped());
    }

    @Test
    @Tag("nightly")
    void memoryStaysBelowItsBound() {
        List<byte[]> fields = Stream.of(set("list", ints(LENGTH)), set("a.list", ints(LENGTH - 1)))
                .map(BsonBytes::of)
                .toList();
        for (int id = 0; id < 1_500; id++) {
            splicer.applyTo(Records.record(Records.key(id), fields.get(id % 2)));
            if (id % 50 == 0) assertTrue(attributeOf("SpliceCacheBytes") <= ROOM);
        }
        assertTrue(attributeOf("SpliceCacheBytes") > ROOM - (20 << 10), "and is used");
        assertTrue(attributeOf("SpliceCacheDropped") > 500);
    }

    private static long attributeOf(String name) {
        try {
            return (long) attribute(name);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static BsonArray ints(int length) {
        return new BsonArray(IntStream.range(0, length).mapToObj(BsonInt32::new).toList());
    }

    /** Documents with large arrays, and with as small ones as are remembered. */
    @ParameterizedTest
    @ValueSource(ints = {LENGTH, 2})
    @Tag("nightly")
    void theEstimateIsHonest(int length) {
        BsonArray value =
                length == 2 ? new BsonArray(List.of(new BsonString("x".repeat(600)), element(1))) : ints(length);
        UpdateParts update =
                UpdateParts.of(BsonBytes.of(set("some.list", value))).orElseThrow();
        // one of five: what other threads hold or release in the meantime is in the heap as well
        List<Double> shares = IntStream.range(0, 5)
                .mapToObj(run -> heapOfEstimate(update))
                .takeWhile(share -> share <= 0.5 || share >= 1.05)
                .toList();
        assertTrue(shares.size() < 5, () -> "bytes of heap for each byte that is estimated: " + shares);
    }

    /** The bytes of heap that a full cache takes, for each byte that it estimates. */
    private static double heapOfEstimate(UpdateParts update) {
        ElementHasher hasher = new ElementHasher();
        ArrayCache cache = new ArrayCache(8 << 20);
        long before = used();
        for (int id = 0; cache.dropped() == 0; id++) {
            DocumentArrays arrays = new DocumentArrays(hasher);
            arrays.apply(update);
            cache.put(new DocumentKey("t", Records.key(id)), arrays);
        }
        long grown = used() - before;
        return (double) grown / cache.bytes();
    }

    private static long used() {
        Runtime runtime = Runtime.getRuntime();
        for (int i = 0; i < 3; i++) System.gc();
        return runtime.totalMemory() - runtime.freeMemory();
    }
}
