package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.net.ServerError;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import io.towpath.support.Context;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Which course the sink takes after the destination refused a write. */
class WritePlanTest {
    private static final String TOPIC = "test.shop.orders";
    private static final String CAPPED = "$splice: {l: [2, [0, 1, []], [2, 0, [%d]]]}";

    private final DeadLetters deadLetters = new DeadLetters(new Context().errantRecordReporter(), 1);

    /** The array has the right length, as it is without the refused change, and is another one. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "true | r {_id: 1, l: [1, 2]}",
                "true | u {_id: 1, $set: {l: [1, 2]}}",
                "false | r {_id: 1, l: [1, 2]}",
                "false | u {_id: 1, $set: {l: [1, 2]}}",
                "false | u {_id: 1, $unset: {l: 0}} ; u {_id: 1, $set: {l: [1, 2]}}"
            })
    void afterARefusedChangeTheArrayIsNotSplicedThoughARecordBeforeHasItWhole(String fold, String whole) {
        String changes = "%s ; u {_id: 1, $set: {n: 2}, %s} ; u {_id: 1, %s} ; u {_id: 1, %s}"
                .formatted(whole, CAPPED.formatted(3), CAPPED.formatted(4), CAPPED.formatted(5));
        List<SinkRecord> part = records(changes.split(" ; "));
        SinkRecord refused = part.get(part.size() - 3);
        WritePlan plan = plan(fold);
        plan.waves(part);
        for (int attempt = 0; attempt < 2; attempt++) refuse(plan, part, refused);

        for (int attempt = 0; attempt < 3; attempt++)
            assertEquals(part.subList(0, part.size() - 3), written(plan, part));
        assertEquals(
                part.subList(part.size() - 3, part.size()),
                part.stream().filter(deadLetters::contains).toList());
    }

    @ParameterizedTest
    @ValueSource(strings = {"u {_id: 1, $splice: {l: [2, [0, 1, []]]}}", "u {_id: 1, $set: {l: 1}}"})
    void whatIsBeforeARefusedChangeIsWritten(String before) {
        List<SinkRecord> part = records(before, "u {_id: 1, $set: {n: 2}, %s}".formatted(CAPPED.formatted(3)));
        WritePlan plan = plan("false");
        refuse(plan, part, part.get(1));
        assertEquals(part.subList(0, 1), written(plan, part));
        assertFalse(deadLetters.contains(part.get(0)));
    }

    /** A sink that lags behind the cleaner finds changes without those before them. */
    @Test
    void whatMayFollowAGapOfACompactedLogDoesNotStopTheSink() {
        Map<String, String> compacted = Map.of(
                LogSettings.LAG, "60000", LogSettings.DELETE_RETENTION, "60000", LogSettings.SERVERS, "unused:9092");
        long now = System.currentTimeMillis();
        WritePlan plan = plan(compacted);
        List<SinkRecord> old = splices(now - 120_000, 0);
        old.forEach(record -> miss(plan, record));
        assertTrue(old.stream().allMatch(deadLetters::contains));
        List<SinkRecord> further = splices(now - 120_000, 100);
        plan.foundNone(writes(plan, further));
        assertFalse(further.stream().anyMatch(deadLetters::contains));
        List<SinkRecord> newer = splices(now, 100);
        plan.foundNone(writes(plan, newer));
        assertTrue(newer.stream().allMatch(deadLetters::contains));

        List<SinkRecord> young = splices(now, old.size());
        assertThrows(ConnectException.class, () -> young.forEach(record -> miss(plan, record)));
        List<SinkRecord> kept = splices(now - 120_000, 2 * old.size());
        WritePlan whole = plan(Map.of());
        assertThrows(ConnectException.class, () -> kept.forEach(record -> miss(whole, record)));
    }

    /** Of more documents than may be refused. */
    private static List<SinkRecord> splices(long appendedMs, int from) {
        return IntStream.rangeClosed(from, from + DeadLetters.ALLOWED_AT_LEAST)
                .mapToObj(offset -> record(
                        offset,
                        "u",
                        "{_id: %d}".formatted(offset),
                        BsonDocument.parse("{%s}".formatted(CAPPED.formatted(3))),
                        appendedMs))
                .toList();
    }

    private static void miss(WritePlan plan, SinkRecord record) {
        for (int attempt = 0; attempt < 2; attempt++) plan.missed(writes(plan, List.of(record)));
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2})
    void theLastUpdateOfAFoldedWriteSaysWhetherTheRowFollows(int marked) {
        List<SinkRecord> updates =
                records("u {_id: 1, $set: {a: 1}}", "u {_id: 1, $set: {b: 1}}", "u {_id: 1, $unset: {c: 0}}");
        WritePlan plan = plan("true");
        List<Write> unmarked = writes(plan, updates);
        assertEquals(1, unmarked.size());
        assertFalse(unmarked.get(0).rowFollows());
        List<SinkRecord> mixed = new ArrayList<>(updates);
        mixed.set(marked, TestTask.marked(updates.get(marked)));
        List<Write> merged = writes(plan, mixed);
        assertEquals(List.of(mixed), merged.stream().map(Write::records).toList());
        assertEquals(marked == 2, merged.get(0).rowFollows());
        List<Write> single = writes(plan("false"), mixed);
        for (int each = 0; each < 3; each++)
            assertEquals(each == marked, single.get(each).rowFollows());
    }

    @Test
    void whatNobodyCanReadIsOneDeadLetter() {
        SinkRecord unreadable = record(0, "u", "{_id: 1}", BsonDocument.parse("{x: 1}"), null);
        WritePlan plan = plan("true");
        for (int attempt = 0; attempt < 2 * DeadLetters.ALLOWED_AT_LEAST; attempt++)
            assertEquals(List.of(), written(plan, List.of(unreadable)));
        assertEquals(1, deadLetters.report(List.of(unreadable)));
    }

    private WritePlan plan(String fold) {
        return plan(Map.of(SinkSettings.FOLD, fold));
    }

    private WritePlan plan(Map<String, String> more) {
        Map<String, String> settings = new HashMap<>(more);
        settings.put("topics", TOPIC);
        settings.put("database", "unused");
        settings.put("namespace.mapper", TopicNamespaceMapper.class.getName());
        settings.put("change.data.capture.handler", RecordHandler.class.getName());
        settings.put(SinkSettings.PIPELINE, "test");
        return new WritePlan(
                SinkSettings.of(settings),
                new Writes(new MongoSinkConfig(settings)),
                deadLetters,
                new SinkMetrics("plan" + System.nanoTime(), "test", 0));
    }

    /** The destination refuses the write with this record. */
    private static void refuse(WritePlan plan, List<SinkRecord> part, SinkRecord record) {
        writes(plan, part).stream()
                .filter(write -> write.records().contains(record))
                .findFirst()
                .ifPresent(write -> plan.refused(new Transaction.Outcome.Refused(
                        write, Verdict.REFUSED, ServerError.BSONObjectTooLarge.code(), "refused")));
    }

    private static List<SinkRecord> written(WritePlan plan, List<SinkRecord> part) {
        return writes(plan, part).stream()
                .flatMap(write -> write.records().stream())
                .toList();
    }

    private static List<Write> writes(WritePlan plan, List<SinkRecord> part) {
        return plan.waves(part).stream()
                .flatMap(List::stream)
                .flatMap(bulk -> bulk.writes().stream())
                .toList();
    }

    /** As {@link TestTask#records}. */
    private static List<SinkRecord> records(String... changes) {
        return IntStream.range(0, changes.length)
                .mapToObj(offset -> {
                    BsonDocument content = BsonDocument.parse(changes[offset].substring(2));
                    String id = new BsonDocument("_id", content.get("_id")).toJson();
                    if (changes[offset].startsWith("u")) content.remove("_id");
                    return record(offset, changes[offset].substring(0, 1), id, content, null);
                })
                .toList();
    }

    private static SinkRecord record(long offset, String operation, String id, BsonDocument value, Long appendedMs) {
        ConnectHeaders headers = new ConnectHeaders();
        headers.addBytes(
                "v",
                "1 %s 1700000000:%d 1700000000000".formatted(operation, offset).getBytes(UTF_8));
        byte[] key = CanonicalKey.of(BsonBytes.of(BsonDocument.parse(id)));
        return new SinkRecord(
                TOPIC,
                0,
                null,
                key,
                null,
                BsonBytes.of(value),
                offset,
                appendedMs,
                TimestampType.LOG_APPEND_TIME,
                headers);
    }
}
