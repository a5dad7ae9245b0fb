package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import io.towpath.support.Fuzz;
import io.towpath.support.Raw;
import io.towpath.support.Splices;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Splices on a real destination: the bytes that the record contract says, and what happens where the array is another one. */
class SplicesServerTest extends DestinationTest {
    private static final int DOCUMENTS = 100;
    private static final int ROUNDS = 8;

    @ParameterizedTest
    @CsvSource({"1, false", "2, true", "3, true"})
    void theBytesThatTheContractSays(long seed, String fold) throws Exception {
        Random random = new Random(seed * 1_000_000_007L + Fuzz.seed());
        List<List<byte[]>> first = new ArrayList<>();
        List<List<byte[]>> second = new ArrayList<>();
        List<SinkRecord> records = new ArrayList<>();
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            for (int id = 0; id < DOCUMENTS; id++) {
                first.add(odd(random));
                second.add(odd(random));
                byte[] document = document(id, first.get(id), second.get(id));
                records.add(sink.record(records.size(), "c", document, document));
            }
            put(sink, records);
            for (int i = DOCUMENTS * ROUNDS; i > 0; i--) {
                int id = random.nextInt(DOCUMENTS);
                List<Splice> splices = new ArrayList<>();
                if (random.nextInt(3) > 0) splices.add(next(random, "list", first, id));
                if (splices.isEmpty() || random.nextInt(3) == 0)
                    splices.add(next(random, "in.the.h\u00e9art", second, id));
                Change update = new Change.Update(new BsonDocument(), List.of(), List.of(), splices);
                records.add(sink.record(records.size(), "u", document(id, List.of(), List.of()), update.encode()));
            }
            while (records.size() > DOCUMENTS) {
                int end = Math.min(records.size(), DOCUMENTS + 1 + random.nextInt(2 * DOCUMENTS));
                put(sink, records.subList(DOCUMENTS, end));
                records.subList(DOCUMENTS, end).clear();
            }
            assertEquals(List.of(), sink.context.letters);
            assertEquals(0L, sink.metrics().get("WithoutDocument"));
        }
        List<BsonDocument> stored = TestTask.stored(collection);
        for (int id = 0; id < DOCUMENTS; id++)
            assertArrayEquals(document(id, first.get(id), second.get(id)), BsonBytes.of(stored.get(id)));
    }

    private static void put(TestTask sink, List<SinkRecord> records) {
        sink.task.put(List.copyOf(records));
    }

    private static Splice next(Random random, String path, List<List<byte[]>> arrays, int id) {
        Splice splice = Splices.random(random, path, arrays.get(id).size());
        List<byte[]> after = Splices.applied(arrays.get(id), splice);
        arrays.set(id, after);
        return splice;
    }

    private static List<byte[]> odd(Random random) {
        List<byte[]> elements = new ArrayList<>(Splices.some(random, 0));
        elements.addAll(Splices.some(random, 0));
        return elements;
    }

    private static byte[] document(int id, List<byte[]> first, List<byte[]> second) {
        return Raw.document(
                Raw.int32("_id", id),
                Raw.int32("twice", 1),
                Raw.int32("twice", 2),
                Raw.element(4, "list", Splices.array(first)),
                Raw.embedded(
                        "in",
                        Raw.int32("z", 1),
                        Raw.embedded("the", Raw.element(4, "h\u00e9art", Splices.array(second)), Raw.int32("a", 1))));
    }

    @Test
    void aSpliceBesideWhatNoOperatorCanDoIsApplied() {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, l: [1, 2, 3], m: [1, 2, 3]}");
            sink.put(
                    1,
                    "u {_id: 1, $set: {'$d': 1, z: 1, y: 2, x: 3}, $splice: {l: [3, [1, 1, [9, 8]]], m: [3, [0, 1, []]]}}");
            assertEquals(
                    TestTask.documents("{_id: 1, l: [1, 9, 8, 3], m: [2, 3], '$d': 1, z: 1, y: 2, x: 3}"),
                    TestTask.stored(collection));
        }
    }

    @Test
    void aBacklogOfCappedPushesIsOneWrite() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, l: [0, 1, 2]}");
            sink.put(1, capped(1, 3, 3_000));
            assertEquals(List.of(2L, 1L), values(sink, "Writes", "Splices"));
            assertEquals(TestTask.documents("{_id: 1, l: [3000, 3001, 3002]}"), TestTask.stored(collection));
        }
    }

    @Test
    void aCappedPushIsASmallWrite() throws Exception {
        String text = "x".repeat(100);
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, l: [%s]}".formatted("'%s', ".formatted(text).repeat(1000)));
            long before = values(sink, "BytesOut").get(0);
            sink.put(1, "u {_id: 1, $splice: {l: [1000, [0, 1, []], [1000, 0, ['%s']]]}}".formatted(text));
            long size = values(sink, "BytesOut").get(0) - before;
            assertTrue(size < 200, size + " bytes");
        }
    }

    @ParameterizedTest
    @CsvSource({"true", "false"})
    void anArrayOfAnotherLengthIsADeadLetterAndTheRestIsApplied(String fold) throws Exception {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            sink.put(0, "c {_id: 1, l: [1, 2, 3], m: [1]}", "c {_id: 2, l: [1, 2, 3]}", "c {_id: 3, l: [1, 2, 3]}");
            damage("{_id: 2}", "{$pop: {l: 1}}");
            sink.put(
                    3,
                    "u {_id: 1, $splice: {l: [3, [0, 1, []]]}}",
                    "u {_id: 2, $set: {a: 1}}",
                    "u {_id: 2, $splice: {l: [3, [1, 1, []]]}}",
                    "u {_id: 2, $set: {b: 1}}",
                    "u {_id: 3, $splice: {l: [3, [1, 1, []]]}}",
                    "u {_id: 1, $splice: {m: [1, [1, 0, [2]]]}}");
            assertEquals(
                    TestTask.documents(
                            "{_id: 1, l: [2, 3], m: [1, 2]}", "{_id: 2, l: [1, 2], a: 1, b: 1}", "{_id: 3, l: [1, 3]}"),
                    TestTask.stored(collection));
            assertEquals(List.of("5"), letters(sink, "offset"));
            assertEquals(List.of("0"), letters(sink, "code"));
            assertEquals(
                    List.of("its array 'l' does not have the 3 elements at the destination that it had at the source: "
                            + "someone else has written to it, or a field on the way to it is in the document twice; "
                            + "`towpath repair PIPELINE --dead-letters` re-reads the document"),
                    letters(sink, "reason"));
            assertEquals(List.of(1L, 1L, 0L), values(sink, "SpliceMisses", "Refused", "WithoutDocument"));
        }
    }

    /** A field that is no array, one within an array, and none. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {"{$set: {d: {l: 5}}}", "{$set: {d: [{l: [1, 2]}]}}", "{$unset: {d: 1}}"})
    void whereThereIsNoArrayTheRecordIsADeadLetter(String damage) {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, d: {l: [1, 2, 3]}}");
            damage("{_id: 1}", damage);
            List<BsonDocument> damaged = TestTask.stored(collection);
            sink.put(1, "u {_id: 1, $splice: {'d.l': [3, [1, 1, []]]}}");
            assertEquals(List.of("1"), letters(sink, "offset"));
            assertEquals(damaged, TestTask.stored(collection));
        }
    }

    /** For an aggregation pipeline that changes a field which is twice in its object, mongod 6.0 aborts. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2, 3, 4})
    void whereAFieldOnTheWayIsTwiceTheRecordIsADeadLetter(int which) {
        byte[] pad = Raw.string("pad", "x".repeat(500));
        byte[] other = Raw.join(Raw.int32("q", 1), Raw.int32("q", 2));
        byte[] five = Raw.int32("l", 5);
        UnaryOperator<byte[]> around =
                switch (which) {
                    case 0 -> list -> Raw.join(Raw.embedded("d", list, five, pad), other);
                    case 1 -> list -> Raw.join(Raw.embedded("d", pad, list, pad, list), other);
                    case 2 -> list -> Raw.join(Raw.embedded("d", list), pad, Raw.embedded("d", pad));
                    case 3 -> list -> Raw.join(Raw.embedded("d", list), Raw.int32("d", 1), pad);
                    default -> list -> Raw.join(Raw.embedded("d", other, list, other), other, pad);
                };
        byte[] id = Raw.document(Raw.int32("_id", 1));
        byte[] first = document(around, 1, 2, 3);
        byte[] staged = document(around, 1, 3);
        try (TestTask sink = TestTask.opened(collection)) {
            sink.task.put(List.of(sink.record(0, "c", id, first)));
            sink.put(1, "u {_id: 1, $splice: {'d.l': [3, [1, 1, []]]}}");
            boolean isApplied = which > 3;
            assertStored(isApplied ? staged : first);
            assertEquals(isApplied ? List.of() : List.of("1"), letters(sink, "offset"));
            if (!isApplied)
                assertEquals(
                        "its array 'd.l' does not have the 3 elements at the destination that it had at the source: "
                                + "someone else has written to it, or a field on the way to it is in the document twice; "
                                + "`towpath repair PIPELINE --dead-letters` re-reads the document",
                        letters(sink, "reason").get(0));
            // as repair answers
            sink.task.put(List.of(sink.record(2, "r", id, staged)));
            sink.put(3, "u {_id: 1, $set: {'d.pad': 1}}");
            sink.task.put(List.of(sink.record(4, "r", id, staged)));
            assertStored(staged);
            assertEquals(isApplied ? 0 : 1, sink.context.letters.size());
        }
    }

    @Test
    void anArrayAtTheTopThatIsTwiceIsNotStaged() {
        byte[] pad = Raw.string("pad", "x".repeat(500));
        byte[] id = Raw.document(Raw.int32("_id", 1));
        byte[] twice = Raw.document(
                Raw.int32("_id", 1),
                Raw.array("l", Raw.int32("0", 1), Raw.int32("1", 2), Raw.int32("2", 3)),
                Raw.array("m", Raw.int32("0", 1), Raw.int32("1", 2), Raw.int32("2", 3)),
                pad,
                Raw.array("m", Raw.int32("0", 1), Raw.int32("1", 2), Raw.int32("2", 3)));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.task.put(List.of(sink.record(0, "c", id, twice)));
            sink.put(1, "u {_id: 1, $splice: {l: [3, [1, 1, []]], m: [3, [1, 1, []]]}}");
            assertStored(twice);
            sink.put(2, "u {_id: 1, $set: {a: 1}}", "u {_id: 1, $splice: {n: [3, [1, 1, []]]}}");
            assertEquals(List.of("1", "3"), letters(sink, "offset"));
        }
    }

    private static byte[] document(UnaryOperator<byte[]> around, int... elements) {
        byte[][] named = new byte[elements.length][];
        for (int i = 0; i < named.length; i++) named[i] = Raw.int32(Integer.toString(i), elements[i]);
        return Raw.document(Raw.int32("_id", 1), around.apply(Raw.array("l", named)));
    }

    private void assertStored(byte[] document) {
        assertArrayEquals(document, BsonBytes.of(TestTask.stored(collection).get(0)));
    }

    @Test
    void aMissingDocumentIsToldFromADamagedOne() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(0, "c {_id: 1, l: [1]}", "c {_id: {a: 2}, l: [1]}", "c {_id: 3}");
            damage("{_id: 1}", null);
            damage("{_id: {a: 2}}", null);
            sink.put(
                    3,
                    "u {_id: 1, $splice: {l: [1, [1, 0, [2]]]}}",
                    "u {_id: {a: 2}, $splice: {l: [1, [1, 0, [2]]]}}",
                    "u {_id: 3, $set: {a: 1}}");
            assertEquals(List.of(WritePlan.GONE, WritePlan.GONE), letters(sink, "reason"));
            assertEquals(List.of(2L, 0L), values(sink, "WithoutDocument", "SpliceMisses"));
        }
        assertEquals(TestTask.documents("{_id: 3, a: 1}"), TestTask.stored(collection));
    }

    @Test
    void missingAndDamagedDocumentsAreToldApart() throws Exception {
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(
                    0,
                    IntStream.range(0, 20)
                            .mapToObj("c {_id: %d, l: [1, 2]}"::formatted)
                            .toArray(String[]::new));
            damage("{_id: 4}", null);
            damage("{_id: 7}", "{$pop: {l: 1}}");
            damage("{_id: 11}", "{$push: {l: 1}}");
            damage("{_id: 15}", null);
            sink.put(
                    20,
                    IntStream.range(0, 20)
                            .mapToObj("u {_id: %d, $splice: {l: [2, [1, 1, []]]}}"::formatted)
                            .toArray(String[]::new));
            assertEquals(List.of("24", "27", "31", "35"), letters(sink, "offset"));
            assertEquals(List.of(2L, 2L), values(sink, "WithoutDocument", "SpliceMisses"));
        }
        assertEquals(16 + 1, collection.countDocuments(BsonDocument.parse("{l: [1]}")));
    }

    /** Of the limit, one damaged array takes one, however often it changes; what is not about it continues, and a whole one repairs it. */
    @ParameterizedTest
    @CsvSource({"true", "false"})
    void oneDamagedArrayDoesNotStopTheSink(String fold) throws Exception {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            sink.put(0, "c {_id: 1, l: [0, 1, 2], m: [1]}", "c {_id: 2, l: [0, 1, 2]}");
            damage("{_id: 1}", "{$pop: {l: -1}}");
            sink.put(2, capped(1, 3, 60));
            sink.put(62, "u {_id: 1, $set: {a: 1}}", "u {_id: 1, $splice: {m: [1, [0, 0, [0]]]}}");
            sink.put(64, "u {_id: 1, $splice: {l: [2, [0, 1, []]]}}"); // of the length that is there by chance
            sink.put(65, capped(2, 3, 60));
            assertEquals(61, sink.context.letters.size());
            assertEquals(
                    "an earlier change of its array 'l' is a dead letter, so the array is not as it was at the source",
                    letters(sink, "reason").get(60));
            assertEquals(
                    TestTask.documents("{_id: 1, l: [1, 2], m: [0, 1], a: 1}", "{_id: 2, l: [60, 61, 62]}"),
                    TestTask.stored(collection));
            sink.put(125, "r {_id: 1, l: [60, 61, 62]}", "u {_id: 1, $splice: {l: [3, [0, 1, []]]}}");
            damage("{_id: 2}", "{$pop: {l: -1}}");
            sink.put(
                    127,
                    "u {_id: 2, $splice: {l: [3, [0, 1, []]]}}",
                    "u {_id: 2, $set: {l: [5, 6, 7]}}",
                    "u {_id: 2, $splice: {l: [3, [1, 1, []]]}}");
            assertEquals(
                    TestTask.documents("{_id: 1, l: [61, 62]}", "{_id: 2, l: [5, 7]}"), TestTask.stored(collection));
            assertEquals(fold.equals("true") ? 61 : 62, sink.context.letters.size());
            assertEquals(
                    (long) sink.context.letters.size(),
                    values(sink, "SpliceMisses").get(0));
        }
    }

    /** The length is right by chance, and the array is not. */
    @ParameterizedTest
    @ValueSource(strings = {"$set: {n: 2}, $splice: {l: [2, [0, 1, []], [2, 0, [3]]]}", "$set: {n: 2, l: [2, 3]}"})
    void afterAnUpdateThatTheDestinationRefusesTheArrayIsNotSplicedUntilItIsWhole(String refused) {
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, "false")) {
            sink.put(0, "c {_id: 1, l: [1, 2], n: 1}");
            server.run("{collMod: 'sink', validator: {n: 1}}");
            sink.put(
                    1,
                    "u {_id: 1, " + refused + "}",
                    "u {_id: 1, $set: {n: 1, o: 1}}",
                    "u {_id: 1, $splice: {l: [2, [0, 1, []], [2, 0, [4]]]}}");
            sink.put(4, "u {_id: 1, $splice: {l: [2, [0, 1, []], [2, 0, [5]]]}}");
            assertEquals(TestTask.documents("{_id: 1, l: [1, 2], n: 1, o: 1}"), TestTask.stored(collection));
            sink.put(5, "u {_id: 1, $set: {l: [5, 6]}}", "u {_id: 1, $splice: {l: [2, [0, 1, []]]}}");
            assertEquals(TestTask.documents("{_id: 1, l: [6], n: 1, o: 1}"), TestTask.stored(collection));
            assertEquals(List.of("1", "3", "4"), letters(sink, "offset"));
            assertEquals(List.of("121", "0", "0"), letters(sink, "code"));
        }
    }

    @Test
    void manyDamagedDocumentsStopTheSink() {
        int count = DeadLetters.ALLOWED_AT_LEAST + 1;
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(
                    0,
                    IntStream.range(0, count)
                            .mapToObj("c {_id: %d, l: [1, 2]}"::formatted)
                            .toArray(String[]::new));
            collection.updateMany(new BsonDocument(), BsonDocument.parse("{$pop: {l: 1}}"));
            String[] splices = IntStream.range(0, count)
                    .mapToObj("u {_id: %d, $splice: {l: [2, [1, 1, []]]}}"::formatted)
                    .toArray(String[]::new);
            ConnectException stopped = assertThrows(ConnectException.class, () -> sink.put(count, splices));
            assertTrue(stopped.getMessage().contains("more than towpath.refused.percent allows"), stopped::getMessage);
        }
    }

    @Test
    @Tag("nightly")
    void aMissAmongThousandsIsFound() throws Exception {
        int count = 3_000;
        try (TestTask sink = TestTask.opened(collection)) {
            sink.put(
                    0,
                    IntStream.range(0, count)
                            .mapToObj("c {_id: %d, l: [1, 2]}"::formatted)
                            .toArray(String[]::new));
            damage("{_id: 1234}", "{$pop: {l: 1}}");
            damage("{_id: 2999}", "{$pop: {l: 1}}");
            sink.put(
                    count,
                    IntStream.range(0, count)
                            .mapToObj("u {_id: %d, $splice: {l: [2, [1, 1, []], [2, 0, [3]]]}}"::formatted)
                            .toArray(String[]::new));
            assertEquals(List.of("4234", "5999"), letters(sink, "offset"));
        }
        assertEquals(count - 2, collection.countDocuments(BsonDocument.parse("{l: [1, 3]}")));
    }

    private void damage(String filter, String update) {
        if (update == null) collection.deleteOne(BsonDocument.parse(filter));
        else collection.updateOne(BsonDocument.parse(filter), BsonDocument.parse(update));
    }

    /** Of an array of so many numbers that begins with 0. */
    private static String[] capped(int id, int cap, int count) {
        return IntStream.range(0, count)
                .mapToObj(i -> "u {_id: %1$d, $splice: {l: [%2$d, [0, 1, []], [%2$d, 0, [%3$d]]]}}"
                        .formatted(id, cap, cap + i))
                .toArray(String[]::new);
    }

    private static List<String> letters(TestTask sink, String header) {
        return sink.context.letters.stream()
                .map(letter -> new String(
                        (byte[]) letter.headers().lastWithName(header).value(), UTF_8))
                .toList();
    }

    private static List<Long> values(TestTask sink, String... names) throws Exception {
        Map<String, Object> metrics = sink.metrics();
        return Stream.of(names).map(name -> (Long) metrics.get(name)).toList();
    }
}
