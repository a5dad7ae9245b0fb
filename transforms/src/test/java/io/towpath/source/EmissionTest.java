package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.connector.LogRecord;
import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.SchemaChange;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.splice.Records;
import io.towpath.support.Definitions;
import io.towpath.support.SourceContext;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The last steps of records: what is smaller than 64 KB always fits, and here nothing else does. */
class EmissionTest {
    private static final BsonString TOO_LARGE = new BsonString("x".repeat(70_000));

    private final SourceMetrics metrics = new SourceMetrics("x-source", "x", "x", new CopyShare(0, 1));
    private final Partitions partitions = new Partitions("x");
    private final SourceContext context = new SourceContext(Map.of());
    private Emission emission = emission(Map.of());
    private final BsonArray array = new BsonArray(IntStream.range(0, 500)
            .mapToObj(n -> new BsonString("%090d".formatted(n)))
            .toList());

    private Emission emission(Map<String, String> settings) {
        Map<String, String> filled = Definitions.filled("source.json");
        filled.put("producer.override.max.request.size", "1");
        filled.putAll(settings);
        return new Emission(SourceSettings.of(filled), partitions, metrics, context);
    }

    @AfterEach
    void close() {
        emission.close();
        metrics.close();
    }

    private static SourceRecord update(BsonDocument set) {
        return Records.record(Records.key(1), BsonBytes.of(new BsonDocument("$set", set)));
    }

    private SourceRecord push(BsonDocument also) {
        array.remove(0);
        array.add(new BsonString("%090d".formatted(array.hashCode())));
        BsonDocument set = new BsonDocument("list", array);
        set.putAll(also);
        return update(set);
    }

    private List<SourceRecord> emit(SourceRecord... records) throws InterruptedException {
        List<SourceRecord> emitted = emission.of(List.of(records));
        context.store(emitted);
        return emitted;
    }

    private static int splices(SourceRecord record) {
        return ((Change.Update) Change.decode((byte[]) record.value()))
                .splices()
                .size();
    }

    @Test
    void anArrayWhoseRecordBecameADeadLetterIsForgotten() throws Exception {
        BsonDocument nothing = new BsonDocument();
        BsonDocument tooLarge = new BsonDocument("text", TOO_LARGE);
        List<SourceRecord> emitted = emit(push(nothing), push(nothing), push(tooLarge), push(nothing), push(nothing));
        assertEquals(0, splices(emitted.get(0)));
        assertEquals(1, splices(emitted.get(1)));
        assertEquals("x", emitted.get(2).topic(), "a dead letter");
        assertEquals(0, splices(emitted.get(3)));
        assertEquals(1, splices(emitted.get(4)));
    }

    @Test
    void aRecordMayFitBecauseItHasASplice() throws Exception {
        List<SourceRecord> emitted = emit(push(new BsonDocument()));
        while (array.size() < 1_000) {
            BsonString added = new BsonString("%090d".formatted(-array.size()));
            emit(update(new BsonDocument("list." + array.size(), added)));
            array.add(added);
        }
        SourceRecord record = push(new BsonDocument());
        assertTrue(((byte[]) record.value()).length > 90_000);
        emitted = emit(record);
        assertEquals(1, splices(emitted.get(0)));
        assertEquals(record.topic(), emitted.get(0).topic());
    }

    @Test
    void theCountsGoOnAfterARestart() throws Exception {
        emit(push(new BsonDocument()));
        assertNull(context.offset(partitions.splices()));
        List<SourceRecord> emitted = emit(push(new BsonDocument()));
        assertEquals(2, emitted.size(), "the counts are in the same transaction");
        assertEquals(Map.of("towpath", "x", "splices", true), emitted.get(1).sourcePartition());
        assertEquals(1L, context.offset(partitions.splices()).get("splices"));
        long saved = (long) context.offset(partitions.splices()).get("saved");
        assertTrue(saved > 40_000);
        emission = emission(Map.of());
        emit(push(new BsonDocument()));
        emit(push(new BsonDocument()));
        assertEquals(2L, context.offset(partitions.splices()).get("splices"));
        assertTrue((long) context.offset(partitions.splices()).get("saved") > saved + 40_000);
    }

    @Test
    void onlyTheFirstTaskSplicesAndOnlyWhereItMay() throws Exception {
        for (Map<String, String> settings :
                List.of(Map.of("towpath.splice.cache.bytes", "0"), Map.of(CopyShare.TASK, "1", CopyShare.TASKS, "2"))) {
            emission = emission(settings);
            for (int i = 0; i < 3; i++) {
                SourceRecord record = push(new BsonDocument());
                List<SourceRecord> emitted = emit(record);
                assertEquals(1, emitted.size());
                assertSame(record, emitted.get(0));
            }
        }
    }

    @Test
    void aSchemaChangePassesAndEndsTheHistoryOfItsTopic() throws Exception {
        emit(push(new BsonDocument()));
        SourceRecord splice = push(new BsonDocument());
        assertEquals(1, splices(emit(splice).get(0)));
        for (SchemaChange.Kind kind : List.of(SchemaChange.Kind.MODIFY, SchemaChange.Kind.DROP)) {
            BsonDocument options = new BsonDocument("large", TOO_LARGE);
            SchemaChange change = new SchemaChange(
                    "1:1/0/shop.orders",
                    kind,
                    "shop.orders",
                    "",
                    false,
                    options,
                    List.of(),
                    false,
                    Map.of(splice.topic(), 1));
            SourceRecord barrier = new LogRecord(
                    Map.of(), Map.of(), splice.topic(), 0, change.key(), change.value(), new ConnectHeaders());
            assertSame(barrier, emit(barrier).get(0), "whatever its size");
            assertEquals(
                    kind == SchemaChange.Kind.DROP ? 0 : 1,
                    splices(emit(push(new BsonDocument())).get(0)));
        }
    }

    @Test
    void nothingStaysNothing() throws Exception {
        assertNull(emission.of(null));
        assertEquals(List.of(), emission.of(List.of()));
    }
}
