package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.record.BsonBytes;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import io.towpath.support.Fuzz;
import io.towpath.support.Raw;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.junit.jupiter.api.Test;

/** Records of any kind, read and folded: writes that say what the good ones say, and a reason for each of the others. */
class WritesFuzzTest {
    private static final String TOPIC = "main.shop.orders";

    @Test
    void everyBadRecordIsRefusedAndEveryGoodOneIsInOneWrite() {
        Map<String, Integer> seen = Fuzz.run("records, read and folded", 2_000, random -> {
            OddRecords records = new OddRecords(random, TOPIC);
            Writes writes = writes();
            List<Writes.RecordedChange> changes = new ArrayList<>();
            int bad = 0;
            for (int offset = 0; offset < 6; offset++) {
                int kind = random.nextInt(4);
                SinkRecord record = any(records, kind, random.nextInt(2), offset);
                try {
                    changes.add(writes.read(record));
                    assertFalse(kind == 0, () -> "taken: " + record);
                } catch (DataException refused) {
                    assertEquals(0, kind, () -> "%s: %s".formatted(refused.getMessage(), record));
                    assertTrue(refused.getMessage().startsWith("no record of Towpath's: "), refused::getMessage);
                    bad++;
                }
            }
            List<Write> folded = Folder.fold(changes, Set.of());
            Waves.of(folded);
            Set<SinkRecord> written = new java.util.HashSet<>();
            for (Write write : folded) written.addAll(write.records());
            changes.forEach(change -> assertTrue(written.remove(change.record()) || isForgotten(change, changes)));
            return bad == 0 ? "all taken" : bad == 6 ? "none taken" : "some refused";
        });
        assertTrue(seen.get("some refused") > Fuzz.times(1_000), seen::toString);
    }

    private static SinkRecord any(OddRecords records, int kind, int id, long offset) {
        return switch (kind) {
            case 0 -> records.bad(id, offset);
            case 1 -> records.doubtful(id, offset);
            case 2 -> records.withOddHeaders(id, offset);
            default -> records.good(id, offset);
        };
    }

    /** A later document or delete of the same key says all. */
    private static boolean isForgotten(Writes.RecordedChange change, List<Writes.RecordedChange> changes) {
        return changes.stream()
                .anyMatch(other -> other.document().equals(change.document())
                        && other.steps() == null
                        && other.record().kafkaOffset() > change.record().kafkaOffset());
    }

    @Test
    void anUpdateOfManyPlacesInNoOrderIsReadSoon() {
        Random random = new Random(1);
        BsonDocument set = new BsonDocument();
        for (int i = 0; i < 50_000; i++) set.append("f" + random.nextInt(Integer.MAX_VALUE), new BsonInt32(i));
        byte[] value = BsonBytes.of(new BsonDocument("$set", set));
        byte[] key = Raw.document(Raw.int64("_id", 1));
        SinkRecord record = new SinkRecord(TOPIC, 0, null, key, null, value, 0);
        assertTimeoutPreemptively(Duration.ofSeconds(60), () -> {
            List<Write> writes = Folder.fold(List.of(writes().read(record)), Set.of());
            assertEquals(1, writes.size());
        });
    }

    private static Writes writes() {
        Map<String, String> settings = new HashMap<>();
        settings.put("connection.uri", "mongodb://127.0.0.1:1");
        settings.put("topics", TOPIC);
        settings.put("database", "unused");
        settings.put("namespace.mapper", TopicNamespaceMapper.class.getName());
        settings.put("change.data.capture.handler", RecordHandler.class.getName());
        return CONFIG == null ? new Writes(CONFIG = new MongoSinkConfig(settings)) : new Writes(CONFIG);
    }

    private static MongoSinkConfig CONFIG;
}
