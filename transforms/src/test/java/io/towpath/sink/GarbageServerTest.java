package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import io.towpath.support.Fuzz;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;

/** Garbage between the records of the same documents, on a real destination: the good ones are applied, the others are dead letters. */
class GarbageServerTest extends DestinationTest {
    private static final int RECORDS = 400;
    private static final int DOCUMENTS = 25;
    /** Of documents whose updates may not be right. */
    private static final int DOUBTFUL = 1_000_000;

    @Test
    void whatIsGoodIsAppliedAndTheRestSetAsideAndNothingElseTouched() {
        Map<String, Integer> seen = Fuzz.run(
                "batches with garbage, " + RECORDS + " records each", 2, Duration.ofMinutes(2), this::oneTopic);
        assertEquals(Fuzz.times(2), seen.get("as without"), seen::toString);
    }

    private String oneTopic(Random random) {
        MongoCollection<RawBsonDocument> clean = server.fresh("clean");
        MongoCollection<RawBsonDocument> bystander = server.fresh("bystander");
        collection = server.fresh("sink");
        server.dropDatabase(Destination.DATABASE);
        server.run("{insert: 'bystander', documents: [{_id: 5, a: 1}, {_id: 6}]}");
        List<SinkRecord> good = new ArrayList<>();
        Map<Long, SinkRecord> bad = new TreeMap<>();
        List<SinkRecord> all = new ArrayList<>();
        // unfolded and without a copy: whether a fold hides an update that the server refuses, and whether a batch also
        // has the document
        // that an update does not find, depends on where a batch ends
        String[] settings = {SinkSettings.REFUSED_PERCENT, "100", SinkSettings.FOLD, "false", LogSettings.COPY, "none"};
        try (TestTask mixed = TestTask.opened(collection, settings);
                TestTask without = TestTask.opened(clean, settings)) {
            OddRecords records = new OddRecords(random, mixed.partition.topic());
            for (long offset = 0; offset < RECORDS; offset++) {
                int id = random.nextInt(DOCUMENTS);
                int kind = random.nextInt(6);
                SinkRecord record =
                        switch (kind) {
                            case 0, 1 -> records.bad(id, offset);
                            case 2 -> records.doubtful(DOUBTFUL, offset);
                            case 3 -> records.withOddHeaders(id, offset);
                            default -> records.good(id, offset);
                        };
                all.add(record);
                if (kind < 2) bad.put(offset, record);
                else if (kind > 2) good.add(record);
            }
            put(mixed, all, random);
            put(without, good.stream().map(record -> moved(record, without)).toList(), random);
            List<String> expected = new ArrayList<>(offsets(without.context.letters));
            bad.keySet().forEach(offset -> expected.add(Long.toString(offset)));
            List<String> reported = offsets(mixed.context.letters);
            for (SinkRecord letter : mixed.context.letters) {
                if (all.get((int) letter.kafkaOffset()).key() != letter.key()) return "another key in a letter";
                if (text(letter, "reason").length() < 10) return "no reason: " + text(letter, "reason");
                assertEquals(mixed.partition.topic(), text(letter, "topic"));
                assertEquals("0", text(letter, "partition"));
            }
            assertEquals(reported.size(), reported.stream().distinct().count(), "told twice");
            List<String> doubtful = new ArrayList<>(reported);
            doubtful.removeAll(expected);
            expected.removeAll(reported);
            assertEquals(List.of(), expected, "no dead letter");
            assertTrue(
                    doubtful.stream().allMatch(offset -> isDoubtful(all.get(Integer.parseInt(offset)))),
                    () -> "dead letters without need: " + doubtful);
        }
        assertHolds(clean);
        assertEquals(TestTask.documents("{_id: 5, a: 1}", "{_id: 6}"), TestTask.stored(bystander));
        return "as without";
    }

    private static void put(TestTask task, List<SinkRecord> records, Random random) {
        for (int from = 0; from < records.size(); ) {
            int to = Math.min(records.size(), from + 1 + random.nextInt(120));
            task.task.put(records.subList(from, to));
            from = to;
        }
        assertEquals(
                records.get(records.size() - 1).kafkaOffset() + 1,
                server.offsets()
                        .find(org.bson.BsonDocument.parse("{'_id.topic': '%s'}".formatted(task.partition.topic())))
                        .first()
                        .getNumber("offset")
                        .longValue());
    }

    private static SinkRecord moved(SinkRecord record, TestTask to) {
        return new SinkRecord(
                to.partition.topic(),
                0,
                record.keySchema(),
                record.key(),
                record.valueSchema(),
                record.value(),
                record.kafkaOffset(),
                record.timestamp(),
                record.timestampType(),
                record.headers());
    }

    private static boolean isDoubtful(SinkRecord record) {
        return new RawBsonDocument((byte[]) record.key()).getNumber("_id").intValue() == DOUBTFUL;
    }

    private static List<String> offsets(List<SinkRecord> letters) {
        return letters.stream().map(letter -> text(letter, "offset")).toList();
    }

    private static String text(SinkRecord letter, String header) {
        return new String((byte[]) letter.headers().lastWithName(header).value(), UTF_8);
    }
}
