package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import com.mongodb.client.MongoCollection;
import io.towpath.fold.Steps;
import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.sink.model.TotalUpdate;
import io.towpath.sink.model.WriteModels;
import io.towpath.support.Fuzz;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Random changes of a collection, as its change stream tells them, through the sink into another: the same bytes. */
class ExactUpdateServerTest extends DestinationTest {
    private static final int DOCUMENTS = 60;
    private static final int CHANGES = 1_500;
    private MongoCollection<RawBsonDocument> source;

    @BeforeEach
    void freshSource() {
        source = server.fresh("source");
    }

    /** A seed, and whether changes are folded. */
    static Stream<Arguments> seeds() {
        return IntStream.range(0, Fuzz.times(2))
                .mapToObj(number -> Arguments.of(Fuzz.seed() + number, Boolean.toString(number % 2 == 0)));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void theSameBytesAsAtTheSource(long seed, String fold) {
        List<BsonDocument> events = ChangeEvents.during(source, () -> change(new Random(seed)));
        ChangeEvents recording = new ChangeEvents(new Random(seed));
        int splices = 0;
        int operators = 0;
        int pipelines = 0;
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            List<SinkRecord> records = new ArrayList<>();
            for (BsonDocument event : events) {
                byte[] id = BsonBytes.of(event.getDocument("documentKey"));
                Change change = recording.spliced(event);
                records.add(sink.record(records.size(), ChangeEvents.operation(event), id, change.encode()));
                if (change instanceof Change.Update update)
                    splices += update.splices().size();
                if (change instanceof Change.Update update && Steps.of(update).areOperators()) operators++;
                else if (change instanceof Change.Update) pipelines++;
            }
            for (int from = 0; from < records.size(); from += 333)
                sink.task.put(records.subList(from, Math.min(records.size(), from + 333)));
            assertEquals(List.of(), sink.context.letters);
        }
        assertHolds(source);
        assertTrue(splices > 20, splices + " splices");
        assertTrue(operators > 200 && pipelines > 50, operators + " by operators, " + pipelines + " by pipelines");
    }

    @Test
    void everyTypeAndEveryNameIsStoredAsItIs() {
        byte[] all = Raw.document(Raw.int32("_id", 1), Raw.join(Raw.everyType()), Raw.int32("$dollar", 1));
        byte[] plain = Raw.document(
                Raw.int32("_id", 2), Raw.embedded("all", Raw.everyType()), Raw.int32("a.b", 1), Raw.int32("a.b", 2));
        byte[] bad = {3, 0, 0, 0, (byte) 0xC3, 0x28, 0}; // no UTF-8
        try (TestTask sink = TestTask.opened(collection)) {
            for (int round = 0; round < 2; round++) {
                sink.task.put(List.of(
                        sink.record(2L * round, "c", all, all), sink.record(2L * round + 1, "c", plain, plain)));
                assertArrayEquals(all, BsonBytes.of(TestTask.stored(collection).get(0)));
                assertArrayEquals(
                        plain, BsonBytes.of(TestTask.stored(collection).get(1)));
            }
            byte[] id = Raw.document(Raw.int32("_id", 3));
            byte[] everything = Raw.embedded("all", Raw.everyType());
            byte[] update = Raw.document(Raw.embedded("$set", everything, Raw.element(2, "z", bad)));
            sink.task.put(List.of(sink.record(4, "c", id, id), sink.record(5, "u", id, update)));
            byte[] expected = Raw.document(Raw.int32("_id", 3), everything, Raw.element(2, "z", bad));
            assertArrayEquals(expected, BsonBytes.of(TestTask.stored(collection).get(2)));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    /** A pipeline that replaces such a document by another one aborts mongod 6.0. */
    @ParameterizedTest
    @CsvSource({"true", "false"})
    void aDocumentWithANameTwiceIsReplacedAlsoWhereItMustBeLiteral(String fold) {
        byte[] id = Raw.document(Raw.int32("_id", 1));
        byte[] odd = Raw.join(Raw.int32("_id", 1), Raw.int32("$d", 1), Raw.string("pad", "x".repeat(500)));
        List<byte[]> documents = List.of(
                Raw.document(odd, Raw.int32("a", 1), Raw.int32("a", 2)),
                Raw.document(odd, Raw.int32("a", 3), Raw.int32("a", 4)),
                Raw.document(odd),
                Raw.document(odd, Raw.embedded("in", odd, Raw.int32("a", 3), Raw.int32("a", 4))),
                Raw.document(odd, Raw.embedded("in", odd, Raw.int32("a", 5))),
                Raw.document(Raw.int32("_id", 1), Raw.timestamp("t", 0, 0), Raw.int32("a", 1), Raw.int32("a", 2)));
        try (TestTask sink = TestTask.opened(collection, SinkSettings.FOLD, fold)) {
            for (int i = 0; i < documents.size(); i++) {
                sink.task.put(List.of(sink.record(2L * i, i == 0 ? "c" : "r", id, documents.get(i))));
                assertArrayEquals(
                        documents.get(i),
                        BsonBytes.of(TestTask.stored(collection).get(0)));
                sink.task.put(List.of(sink.record(2L * i + 1, "u", id, documents.get(i))));
            }
            List<SinkRecord> together = new ArrayList<>();
            for (byte[] document : documents) together.add(sink.record(100L + together.size(), "u", id, document));
            sink.task.put(together);
            assertArrayEquals(
                    documents.get(documents.size() - 1),
                    BsonBytes.of(TestTask.stored(collection).get(0)));
            assertEquals(List.of(), sink.context.letters);
        }
    }

    /** Of what a pipeline changes, so that mongod 6.0 would abort. */
    @ParameterizedTest
    @ValueSource(strings = {"{a: 1, '$x': 1}", "{'$x': 1, 'd.a': 1}", "{'l.0.a': 1, 'l.0.$x': 1}"})
    void anUpdateByPipelineOfAFieldThatIsTwiceIsADeadLetter(String set) {
        byte[] pad = Raw.string("pad", "x".repeat(500));
        byte[] twice = Raw.join(Raw.int32("a", 5), pad, Raw.int32("a", 6));
        byte[] id = Raw.document(Raw.int32("_id", 1));
        byte[] document = Raw.document(
                Raw.int32("_id", 1), twice, Raw.embedded("d", twice), Raw.array("l", Raw.embedded("0", twice)));
        try (TestTask sink = TestTask.opened(collection)) {
            sink.task.put(List.of(sink.record(0, "c", id, document)));
            sink.put(1, "u {_id: 1, $set: %s}".formatted(set), "u {_id: 1, $set: {z: 1}}");
            byte[] expected = Raw.document(
                    Raw.int32("_id", 1),
                    twice,
                    Raw.embedded("d", twice),
                    Raw.array("l", Raw.embedded("0", twice)),
                    Raw.int32("z", 1));
            assertArrayEquals(expected, BsonBytes.of(TestTask.stored(collection).get(0)));
            assertEquals(1, sink.context.letters.size());
            String reason = new String(
                    (byte[]) sink.context
                            .letters
                            .get(0)
                            .headers()
                            .lastWithName("reason")
                            .value(),
                    UTF_8);
            assertTrue(
                    reason.contains("a field on the way to what the update changes is in the document twice"), reason);
        }
    }

    private void change(Random random) {
        RandomUpdates updates = new RandomUpdates(random.nextLong());
        for (int i = 0; i < CHANGES; i++) {
            int id = random.nextInt(DOCUMENTS);
            BsonDocument filter = new BsonDocument("_id", new BsonInt32(id));
            try {
                switch (random.nextInt(13)) {
                    case 0 -> source.deleteOne(filter);
                    case 1, 2 -> source.insertOne(new RawBsonDocument(updates.document(id)));
                    case 3, 4 -> source.updateOne(
                            filter, TotalUpdate.of(updates.update(true)).orElseThrow());
                    case 5 -> source.updateOne(
                            filter,
                            List.of(BsonDocument.parse(
                                    "{$set: {z%d: 1, b: 2, 'a.y': 3, 'a.x': %d}}".formatted(i % 3, i))));
                    case 6 -> source.updateOne(
                            filter,
                            BsonDocument.parse(
                                    "{$push: {list: {n: %d, t: [1, 2, 3]}}, $inc: {count: 1}}".formatted(i)));
                    case 7 -> source.updateOne(
                            filter,
                            List.of(BsonDocument.parse(
                                    "{$set: {list: {$slice: [{$ifNull: ['$list', []]}, %d]}}}".formatted(1 + i % 4))));
                    case 8 -> source.updateOne(
                            filter, BsonDocument.parse("{$push: {list: {$each: [%d], $slice: -4}}}".formatted(i)));
                    case 9 -> source.updateOne(
                            filter,
                            BsonDocument.parse("{$push: {list: {$each: [%d], $position: %d}}}".formatted(i, i % 3)));
                    case 10 -> source.updateOne(
                            filter, BsonDocument.parse("{$pull: {list: {n: {$mod: [3, %d]}}}}".formatted(i % 3)));
                    default -> source.updateOne(filter, WriteModels.operators(updates.update(true)));
                }
            } catch (MongoException refused) {
                // nothing has changed
            }
        }
    }
}
