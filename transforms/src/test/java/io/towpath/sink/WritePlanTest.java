package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.connector.TextHeaders;
import io.towpath.net.ServerError;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Chunks;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import io.towpath.support.Context;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Which course the sink takes after the destination refused a write. */
class WritePlanTest {
    private static final String TOPIC = "test.shop.orders";
    private static final String CAPPED = "$splice: {l: [2, [0, 1, []], [2, 0, [%d]]]}";

    private final Context context = new Context();
    private final DeadLetters deadLetters = new DeadLetters(context.errantRecordReporter(), 1);

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

    /** The cleaner removes a chunk only behind a later record of its document. Otherwise the log is not whole. */
    @Test
    void aMissingChunkIsADeadLetterUnlessTheCleanerMayHaveRemovedIt() {
        Map<String, String> compacted = Map.of(
                LogSettings.LAG, "60000", LogSettings.DELETE_RETENTION, "60000", LogSettings.SERVERS, "unused:9092");
        long now = System.currentTimeMillis();
        Chunks chunks = new Chunks(new byte[Chunks.ID_BYTES], 2, 90, true);
        BsonDocument value = new RawBsonDocument(chunks.value());
        SinkRecord old = missing(record(10, "r", "{_id: 1}", value, now - 120_000));
        SinkRecord young = missing(record(20, "r", "{_id: 1}", value, now));
        SinkRecord unread = record(30, "r", "{_id: 1}", value, now - 120_000);
        SinkRecord chunk = record(3, "r", "{_id: 1}", value, now);
        chunk = chunk.newRecord(TOPIC, 0, null, chunks.key((byte[]) chunk.key(), 0), null, null, now, chunk.headers());
        assertEquals(List.of(), plan(compacted).waves(List.of(old, chunk)));
        assertFalse(deadLetters.contains(old));
        assertEquals(List.of(), plan(compacted).waves(List.of(young, chunk)));
        assertTrue(deadLetters.contains(young));
        assertEquals(List.of(), plan(compacted).waves(List.of(unread, chunk)));
        assertTrue(deadLetters.contains(unread), "that its chunks are gone is not known");
        assertEquals(List.of(), plan(Map.of()).waves(List.of(old, chunk)));
        assertTrue(deadLetters.contains(old));
        assertFalse(deadLetters.contains(chunk));
    }

    /** The record, of which the log is known to have no chunk any more. */
    private static SinkRecord missing(SinkRecord record) {
        TopicPartition partition = new TopicPartition(TOPIC, 0);
        MockConsumer<byte[], byte[]> log = new MockConsumer<>("earliest");
        log.updateBeginningOffsets(Map.of(partition, 0L));
        log.updateEndOffsets(Map.of(partition, 100L));
        for (int poll = 0; poll < 10; poll++)
            log.schedulePollTask(() -> log.addRecord(new ConsumerRecord<>(TOPIC, 0, record.kafkaOffset(), null, null)));
        SinkRecord joined =
                new ChunkedRecords(() -> log).joined(List.of(record)).get(0);
        assertTrue(ChunkedRecords.isMissing(joined));
        return joined;
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
        assertEquals(
                "shop.orders",
                TextHeaders.read(context.letters.get(0), "namespace").orElseThrow());
    }

    /** After a refused change of an array, until a record has it whole. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "r {_id: 1, a: {l: [1, 2]}} | true",
                "u {_id: 1, $set: {'a.l': [1, 2]}} | true",
                "u {_id: 1, $set: {a: {l: [1, 2]}}} | true",
                "u {_id: 1, $unset: {a: ''}} | true",
                "u {_id: 1, $set: {'a.l.0': 1}} | false",
                "u {_id: 1, $set: {'a.k': [1], 'a.l2': 1, b: 1}} | false",
                "u {_id: 1, $set: {'': 1}} | false",
                "r {_id: 2, a: {l: [1, 2]}} | false"
            })
    void anArrayIsSplicedAgainOnceARecordHasItWhole(String between, boolean isWritten) {
        String splice = "u {_id: 1, $splice: {'a.l': [2, [0, 1, []], [2, 0, [3]]]}}";
        List<SinkRecord> part = records(splice, between, splice);
        WritePlan plan = plan("false");
        refuse(plan, part, part.get(0));
        assertEquals(part.subList(1, isWritten ? 3 : 2), written(plan, part));
        assertEquals(!isWritten, deadLetters.contains(part.get(2)));
    }

    @Test
    void whatADeadLetterSetsIsNotSplicedEither() {
        List<SinkRecord> part = records(
                "u {_id: 1, $splice: {l: [2, [0, 1, []]]}}",
                "u {_id: 1, $set: {m: [1, 2]}, $splice: {l: [2, [0, 1, []]]}}",
                "u {_id: 1, $splice: {m: [2, [0, 1, []]]}}",
                "u {_id: 1, $splice: {n: [2, [0, 1, []]]}}");
        WritePlan plan = plan("false");
        refuse(plan, part, part.get(0));
        assertEquals(part.subList(3, 4), written(plan, part));
        plan.startOver();
        deadLetters.forget(new TopicPartition(TOPIC, 0));
        assertEquals(part, written(plan, part), "the log is read again from further back");
    }

    @Test
    void aDocumentThatIsGoneIsOneDeadLetterUntilARecordHasItWhole() {
        List<SinkRecord> updates = records(
                "u {_id: 1, $set: {a: 1}}", "u {_id: 1, $set: {a: 2}}", "r {_id: 1}", "u {_id: 1, $set: {a: 3}}");
        WritePlan plan = plan("false");
        for (SinkRecord record : updates.subList(0, 2)) plan.foundNone(writes(plan, List.of(record)));
        assertEquals(
                updates.subList(0, 1),
                updates.stream().filter(deadLetters::contains).toList());
        written(plan, updates.subList(2, 3));
        plan.foundNone(writes(plan, updates.subList(3, 4)));
        assertTrue(deadLetters.contains(updates.get(3)));
        plan.forget(new MongoNamespace("shop.other"));
        plan.foundNone(writes(plan, updates.subList(1, 2)));
        assertFalse(deadLetters.contains(updates.get(1)));
        plan.forget(new MongoNamespace("shop.orders"));
        plan.foundNone(writes(plan, updates.subList(1, 2)));
        assertTrue(deadLetters.contains(updates.get(1)));
    }

    @Test
    void aRefusedDocumentIsNotThereForItsUpdates() {
        List<SinkRecord> part = records("c {_id: 1}", "u {_id: 1, $set: {a: 1}}");
        WritePlan plan = plan("false");
        refuse(plan, part, part.get(0));
        plan.foundNone(writes(plan, part));
        assertFalse(deadLetters.contains(part.get(1)), "it says nothing new");
    }

    /** A unique value that one write frees and another takes. */
    @Test
    void aDuplicateIsTriedInTheSourcesOrderBeforeItIsADeadLetter() {
        TopicPartition other = new TopicPartition(TOPIC, 1);
        List<SinkRecord> some =
                records("u {_id: 1, $set: {a: 1}}", "c {_id: 2}", "u {_id: 1, $set: {a: 2}}", "c {_id: 3}");
        List<SinkRecord> part = new ArrayList<>(List.of(some.get(1), some.get(3)));
        part.addAll(TestTask.in(other, List.of(some.get(0), some.get(2))));
        WritePlan plan = plan("true");
        int duplicate = ServerError.DuplicateKey.code();
        assertFalse(plan.refused(refused(writes(plan, part).get(0), duplicate)));
        assertEquals(1, plan.waves(part).size());
        assertEquals(List.of(0L, 1L, 2L, 3L), offsets(writes(plan, part)));

        assertFalse(plan.refused(refused(writes(plan, part).get(1), duplicate)));
        assertTrue(deadLetters.contains(part.get(0)));
        assertEquals(List.of(0L, 2L, 3L), offsets(writes(plan, part)));
        assertTrue(plan.refused(refused(writes(plan, part).get(0), 121)));
        assertTrue(deadLetters.contains(part.get(2)));

        plan.applied();
        assertEquals(2, writes(plan, part).size(), "folded, by class");
    }

    @Test
    void whatWasTriedAloneIsTriedTogetherInTheNextBatch() {
        List<SinkRecord> updates = records("u {_id: 1, $set: {a: 1}}", "u {_id: 1, $set: {a: 2}}");
        WritePlan plan = plan("true");
        assertTrue(plan.refused(refused(writes(plan, updates).get(0), 121)));
        assertEquals(2, writes(plan, updates).size());
        plan.missed(writes(plan, updates));
        assertEquals(1, plan.suspects().size());
        plan.applied();
        assertEquals(1, writes(plan, updates).size());
        assertEquals(Set.of(), plan.suspects());
    }

    /** By a default collation, "a" and "A" are one _id. */
    @Test
    void whatIsTriedAloneKeepsTheOrderOfDocumentsThatMayBeInTheWayOfOneAnother() {
        List<SinkRecord> part = records(
                "u {_id: 'a', $set: {x: 1}}", "d {_id: 'a'}", "c {_id: 'A'}", "d {_id: 'A'}", "c {_id: 'a', bad: 1}");
        WritePlan plan = plan("true");
        assertEquals(2, writes(plan, part).size(), "folded");
        refuse(plan, part, part.get(4));
        assertEquals(part, written(plan, part));
        assertEquals(part.subList(0, 3), written(plan, part.subList(0, 3)), "the next part is smaller");
        plan.applied();
        assertEquals(2, writes(plan, part).size());
    }

    private static List<Long> offsets(List<Write> writes) {
        return writes.stream().map(write -> write.record().kafkaOffset()).toList();
    }

    private static Transaction.Outcome.Refused refused(Write write, int code) {
        return new Transaction.Outcome.Refused(write, Verdict.REFUSED, code, "refused");
    }

    /** What follows a schema change must not be applied without it. */
    @Test
    void aSchemaChangeIsNoWriteAndNoDeadLetter() {
        WritePlan plan = plan("true");
        byte[] key = BsonBytes.of(BsonDocument.parse("{ddl: '5:2/0/shop.orders'}"));
        SinkRecord change = new SinkRecord(TOPIC, 0, null, key, null, new byte[] {1}, 5);
        assertEquals(List.of(), writes(plan, List.of(change)));
        SinkRecord unreadable = record(6, "ddl", "{_id: 1}", BsonDocument.parse("{x: 1}"), null);
        ConnectException stopped = assertThrows(ConnectException.class, () -> plan.waves(List.of(unreadable)));
        assertTrue(stopped.getMessage().startsWith("TWP-SCHEMA-RECORD: "), stopped::getMessage);
        assertFalse(deadLetters.contains(unreadable));
    }

    @Test
    void onlyADocumentThatIsNewByItsTopicIsInserted() {
        Writes writes = writes();
        List<String> operations =
                List.of("c {_id: 1}", "r {_id: 1}", "u {_id: 1}", "c {_id: 1, $x: 1}", "u {_id: 1, $x: 1}");
        assertEquals(
                List.of("INSERT", "INSERT", "CHANGE", "DELETE CHANGE", "DELETE CHANGE"), kinds(writes, operations));
        writes.markPresent(records("r {_id: 1}").get(0));
        assertEquals(List.of("INSERT", "CHANGE"), kinds(writes, operations.subList(0, 2)));
        writes.changed("test.shop.other", false);
        assertEquals(List.of("INSERT", "CHANGE"), kinds(writes, operations.subList(0, 2)));
        writes.changed(TOPIC, false);
        assertEquals(List.of("INSERT", "INSERT"), kinds(writes, operations.subList(0, 2)), "the collection is empty");
        writes.changed(TOPIC, true);
        assertEquals(List.of("INSERT", "CHANGE"), kinds(writes, operations.subList(0, 2)), "its rows come again");
    }

    /** Alone, and folded with an update. */
    private static List<String> kinds(Writes writes, List<String> documents) {
        return documents.stream()
                .map(document -> {
                    BsonDocument value = BsonDocument.parse(document.substring(2));
                    List<Writes.RecordedChange> changes = List.of(
                            writes.read(record(0, document.substring(0, 1), "{_id: 1}", value, null)),
                            writes.read(records("u {_id: 1, $set: {a: 1}}").get(0)));
                    String alone = kinds(Folder.fold(changes.subList(0, 1), Set.of()));
                    assertEquals(alone, kinds(Folder.fold(changes, Set.of())));
                    return alone;
                })
                .toList();
    }

    private static String kinds(List<Write> writes) {
        return writes.stream().map(write -> write.kind().name()).collect(Collectors.joining(" "));
    }

    @Test
    void aKeyThatIsNotWholeIsRefused() {
        byte[] key = Raw.document(Raw.element(2, "_id", new byte[] {2, 0, 0, 0, 'a', 'b'}));
        SinkRecord record = new SinkRecord(TOPIC, 0, null, key, null, null, 5);
        assertThrows(DataException.class, () -> writes().read(record));
    }

    private WritePlan plan(String fold) {
        return plan(Map.of(SinkSettings.FOLD, fold));
    }

    private WritePlan plan(Map<String, String> more) {
        Map<String, String> settings = new HashMap<>(more);
        settings.put("topics", TOPIC);
        settings.put(SinkSettings.PIPELINE, "test");
        return new WritePlan(
                SinkSettings.of(settings),
                writes(),
                deadLetters,
                new SinkMetrics("plan" + System.nanoTime(), "test", 0));
    }

    private static Writes writes() {
        return new Writes(new MongoSinkConfig(Map.of(
                "topics",
                TOPIC,
                "database",
                "unused",
                "namespace.mapper",
                TopicNamespaceMapper.class.getName(),
                "change.data.capture.handler",
                RecordHandler.class.getName())));
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
                    if (changes[offset].startsWith("d")) content = null;
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
                value == null ? null : BsonBytes.of(value),
                offset,
                appendedMs,
                TimestampType.LOG_APPEND_TIME,
                headers);
    }
}
