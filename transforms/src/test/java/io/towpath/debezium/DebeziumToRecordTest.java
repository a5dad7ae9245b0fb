package io.towpath.debezium;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Raw;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.ServiceLoader;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class DebeziumToRecordTest {
    private static final byte[] ID = Raw.decimal("_id", "5.00");
    private static final byte[] KEY = Raw.document(Raw.int64("_id", 5));
    private static final byte[] DOCUMENT =
            Raw.document(ID, Raw.join(Raw.everyType()), Raw.int32("twice", 1), Raw.int32("twice", 2));
    private static final byte[] UPDATED =
            Raw.embedded("updatedFields", Raw.int64("a.b", 1), Raw.doubleBits("z", 0x7FF00000DEADBEEFL));

    private final DebeziumToRecord transform = configured(false);

    @ParameterizedTest
    @ValueSource(strings = {"r", "c", "u"})
    void documentArrivesAsItIsStored(String op) {
        SourceRecord record = DebeziumRecords.op(op).after(DOCUMENT).record();

        SourceRecord compact = transform.apply(record);

        assertArrayEquals(KEY, (byte[]) compact.key());
        assertArrayEquals(DOCUMENT, (byte[]) compact.value());
        assertEquals("main.shop.orders", compact.topic());
        assertNull(compact.kafkaPartition());
        assertNull(compact.timestamp());
        assertEquals(Schema.BYTES_SCHEMA, compact.keySchema());
        assertEquals(Schema.OPTIONAL_BYTES_SCHEMA, compact.valueSchema());
        assertEquals(record.sourcePartition(), compact.sourcePartition());
        assertSame(record.sourceOffset(), compact.sourceOffset());
    }

    @Test
    void updateTellsOnlyWhatChanged() {
        byte[] removed = Raw.array("removedFields", Raw.string("0", "gone"), Raw.string("1", "a.gone"));
        byte[] cut =
                Raw.array("truncatedArrays", Raw.embedded("0", Raw.string("field", "list"), Raw.int32("newSize", 2)));

        SourceRecord compact = transform.apply(
                DebeziumRecords.op("u").carried(ID, UPDATED, removed, cut).record());

        assertArrayEquals(KEY, (byte[]) compact.key());
        assertArrayEquals(
                Raw.document(
                        Raw.embedded("$set", Raw.int64("a.b", 1), Raw.doubleBits("z", 0x7FF00000DEADBEEFL)),
                        Raw.embedded("$unset", Raw.string("gone", ""), Raw.string("a.gone", "")),
                        Raw.embedded("$truncate", Raw.int32("list", 2))),
                (byte[]) compact.value());
    }

    /** Events of servers from 8.2 on, in the form that MongoDB's manual and its test of disambiguatedPaths show. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void pathsThatAreSpelledOutChangeNothing(boolean hasNumber) {
        byte[] path =
                Raw.array("residences.0.0", Raw.string("0", "residences"), Raw.int32("1", 0), Raw.string("2", "0"));
        byte[] paths = hasNumber ? Raw.embedded("disambiguatedPaths", path) : Raw.embedded("disambiguatedPaths");
        SourceRecord update = DebeziumRecords.op("u")
                .carried(ID, UPDATED, Raw.array("removedFields"), Raw.array("truncatedArrays"), paths)
                .record();

        assertFalse(DebeziumEvent.in(update).orElseThrow().needsDocument());
        assertArrayEquals(
                (byte[]) transform
                        .apply(DebeziumRecords.op("u").carried(ID, UPDATED).record())
                        .value(),
                (byte[]) transform.apply(update).value());
    }

    @Test
    void fieldWithADotInItsNameIsReadAsADocument() {
        byte[] plain = Raw.array("a.0", Raw.string("0", "a"), Raw.string("1", "0"));
        byte[] dotted = Raw.array("home.town", Raw.string("0", "home.town"));
        DebeziumEvent event = DebeziumEvent.in(DebeziumRecords.op("u")
                        .carried(ID, UPDATED, Raw.embedded("disambiguatedPaths", plain, dotted))
                        .record())
                .orElseThrow();
        assertTrue(event.needsDocument());
        assertFalse(event.isOversized());
    }

    @Test
    void updateOfNothingIsDropped() {
        assertNull(transform.apply(DebeziumRecords.op("u")
                .carried(ID, Raw.embedded("updatedFields"), Raw.array("removedFields"))
                .record()));
    }

    @Test
    void deleteIsAKeyWithoutValue() {
        SourceRecord compact =
                transform.apply(DebeziumRecords.op("d").carried(ID).record());
        assertArrayEquals(KEY, (byte[]) compact.key());
        assertNull(compact.value());
        assertEquals("main.shop.orders", compact.topic());
    }

    @Test
    void wholeDocumentsStandForUpdatesUnlessTheyAreGone() {
        DebeziumToRecord whole = configured(true);
        SourceRecord compact = whole.apply(
                DebeziumRecords.op("u").carried(ID, UPDATED).after(DOCUMENT).record());
        assertArrayEquals(DOCUMENT, (byte[]) compact.value());
        assertNull(whole.apply(DebeziumRecords.op("u").carried(ID, UPDATED).record()));
    }

    @Test
    void lookedUpDocumentIsLeftAsideOtherwise() {
        SourceRecord compact = transform.apply(
                DebeziumRecords.op("u").carried(ID, UPDATED).after(DOCUMENT).record());
        assertTrue(new String((byte[]) compact.value(), UTF_8).contains("$set"));
    }

    @Test
    void headerIsReadableText() {
        assertEquals(
                Map.of("v", "1 u 1700000000:7 1700000000123"),
                headers(transform.apply(
                        DebeziumRecords.op("u").carried(ID, UPDATED).record())));
    }

    @Test
    void readHasTheTimeOfItsResumeTokenAndDebeziumsClock() {
        byte[] token = Raw.document(Raw.string("_data", "82F5E5E5E58000000B2B0229296E04"));
        Map<String, Object> offset =
                Map.of("sec", -1, "ord", -1, "resume_token", Base64.getEncoder().encodeToString(token));
        assertEquals(
                Map.of("v", "1 r 4125484517:2147483659 1700000009999"),
                headers(transform.apply(
                        DebeziumRecords.op("r").after(DOCUMENT).offset(offset).record())));
    }

    @Test
    void heartbeatBecomesTextAndKeepsItsTopic() {
        Schema schema =
                SchemaBuilder.struct().field("ts_ms", Schema.INT64_SCHEMA).build();
        SourceRecord heartbeat = new SourceRecord(
                Map.of(),
                Map.of("sec", 1),
                "__debezium-heartbeat.capture",
                0,
                schema,
                new Struct(schema).put("ts_ms", 1L),
                schema,
                new Struct(schema).put("ts_ms", 2L));

        SourceRecord text = transform.apply(heartbeat);

        assertEquals("{\"ts_ms\":1}", new String((byte[]) text.key(), UTF_8));
        assertEquals("{\"ts_ms\":2}", new String((byte[]) text.value(), UTF_8));
        assertEquals("__debezium-heartbeat.capture", text.topic());
        assertEquals(0, text.kafkaPartition());
        assertSame(heartbeat.sourceOffset(), text.sourceOffset());
        assertSame(text, transform.apply(text));
    }

    @Test
    void tombstoneIsDropped() {
        SourceRecord tombstone =
                new SourceRecord(Map.of(), Map.of(), "capture.shop.orders", Schema.STRING_SCHEMA, "k", null, null);
        assertNull(transform.apply(tombstone));
    }

    @Test
    void jsonIsRefused() {
        refused(
                DebeziumRecords.op("c").after("{\"_id\": 5}"),
                "shop.orders: the document came as JSON, which loses types; set mongodb.authentication.class of the source connector to io.towpath.debezium.RawDocuments");
    }

    @Test
    void updateWithoutItsBytesIsRefused() {
        for (String op : new String[] {"u", "d"}) {
            DataException error = assertThrows(
                    DataException.class,
                    () -> transform.apply(
                            DebeziumRecords.op(op).describedInJson().record()));
            assertTrue(
                    error.getMessage()
                            .startsWith(
                                    "shop.orders: an update or a delete without the bytes of its key; set cursor.pipeline"),
                    error.getMessage());
        }
    }

    @Test
    void namesThatNoTopicCanHaveAreRefused() {
        refused(
                DebeziumRecords.op("c").after(DOCUMENT).collection("or ders"),
                "shop.or ders: no topic can be named 'main.shop.or ders' (at most 249 letters, digits, dots, _ and -); exclude the collection");
        assertThrows(
                DataException.class,
                () -> transform.apply(DebeziumRecords.op("c")
                        .after(DOCUMENT)
                        .collection("x".repeat(250))
                        .record()));
    }

    @Test
    void otherProblemsAreNamed() {
        refused(DebeziumRecords.op("t"), "shop.orders: unknown op 't' in Debezium's record");
        refused(DebeziumRecords.op("r"), "shop.orders: Debezium's record (op r) has no document");
        refused(
                DebeziumRecords.op("c").after(DOCUMENT).offset(Map.of()),
                "shop.orders: a record of Debezium's without a cluster time; its offset: {}");
        refused(
                DebeziumRecords.op("c").after(DOCUMENT).offset(Map.of("resume_token", "???")),
                "shop.orders: resume token '???' cannot be read");
        String tooShort = Base64.getEncoder().encodeToString(Raw.document(Raw.string("_data", "8200")));
        refused(
                DebeziumRecords.op("c").after(DOCUMENT).offset(Map.of("resume_token", tooShort)),
                "shop.orders: resume token '%s' does not begin with a cluster time".formatted(tooShort));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a.b", "a b"})
    void prefixIsOneWord(String prefix) {
        assertThrows(ConfigException.class, () -> new DebeziumToRecord()
                .configure(Map.of(DebeziumToRecord.TOPIC_PREFIX, prefix)));
    }

    @Test
    void connectFindsTheTransform() {
        assertTrue(ServiceLoader.load((Class<?>) Transformation.class).stream()
                .anyMatch(provider -> provider.type() == DebeziumToRecord.class));
    }

    private void refused(DebeziumRecords records, String words) {
        assertEquals(
                words,
                assertThrows(DataException.class, () -> transform.apply(records.record()))
                        .getMessage());
    }

    /** As Connect's header converter writes them. */
    private static Map<String, String> headers(SourceRecord record) {
        Map<String, String> texts = new HashMap<>();
        try (ByteArrayConverter converter = new ByteArrayConverter()) {
            for (Header header : record.headers()) {
                byte[] bytes =
                        converter.fromConnectHeader(record.topic(), header.key(), header.schema(), header.value());
                texts.put(header.key(), new String(bytes, UTF_8));
            }
        }
        return texts;
    }

    private static DebeziumToRecord configured(boolean wholeDocuments) {
        DebeziumToRecord transform = new DebeziumToRecord();
        transform.configure(Map.of(
                DebeziumToRecord.TOPIC_PREFIX,
                "main",
                DebeziumToRecord.WHOLE_DOCUMENTS,
                Boolean.toString(wholeDocuments)));
        return transform;
    }
}
