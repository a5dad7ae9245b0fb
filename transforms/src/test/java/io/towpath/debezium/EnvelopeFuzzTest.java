package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.support.Fuzz;
import io.towpath.support.Garbage;
import io.towpath.support.Raw;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;

/** Envelopes with parts that are absent or odd: a record of the contract, text, or an error that names where it comes from. */
class EnvelopeFuzzTest {
    private static final byte[] ID = Raw.int32("_id", 5);
    private static final byte[] DOCUMENT = Raw.document(ID, Raw.join(Raw.everyType()));
    private static final byte[] BEFORE = Raw.document(
            Raw.embedded("documentKey", ID),
            Raw.embedded(
                    "updateDescription",
                    Raw.embedded("updatedFields", Raw.int32("a", 1)),
                    Raw.array("removedFields", Raw.string("0", "gone")),
                    Raw.array(
                            "truncatedArrays",
                            Raw.embedded("0", Raw.string("field", "list"), Raw.int32("newSize", 3)))));
    private static final byte[][] ODD_DESCRIPTIONS = {
        Raw.int32("updateDescription", 1),
        Raw.embedded("updateDescription"),
        Raw.embedded("updateDescription", Raw.string("updatedFields", "{}")),
        Raw.embedded("updateDescription", Raw.array("removedFields", Raw.int32("0", 1))),
        Raw.embedded("updateDescription", Raw.embedded("removedFields")),
        Raw.embedded("updateDescription", Raw.array("truncatedArrays", Raw.string("0", "list"))),
        Raw.embedded("updateDescription", Raw.array("truncatedArrays", Raw.embedded("0", Raw.int32("newSize", 3)))),
        Raw.embedded(
                "updateDescription",
                Raw.array("truncatedArrays", Raw.embedded("0", Raw.string("field", "list"), Raw.int32("newSize", -3)))),
        Raw.embedded(
                "updateDescription",
                Raw.array("truncatedArrays", Raw.embedded("0", Raw.string("field", "list"), Raw.int64("newSize", 3)))),
    };
    private static final String[] JSON = {"", "null", "{\"_id\": 5}", "{", "\u0001bson", "\u0001bson:", "\u0002bson:x"};

    @Test
    void anyEnvelopeIsARecordOrTextOrAnErrorWithItsPlace() {
        DebeziumToRecord transform = new DebeziumToRecord();
        transform.configure(Map.of(DebeziumToRecord.TOPIC_PREFIX, "main"));
        DebeziumToRecord whole = new DebeziumToRecord();
        whole.configure(Map.of(DebeziumToRecord.TOPIC_PREFIX, "main", DebeziumToRecord.WHOLE_DOCUMENTS, "true"));
        Map<String, Integer> seen = Fuzz.run("envelopes", 30_000, random -> {
            SourceRecord record = record(random);
            SourceRecord converted;
            try {
                converted = (random.nextBoolean() ? transform : whole).apply(record);
            } catch (DataException refused) {
                String words = refused.getMessage();
                boolean hasPlace = words.startsWith("shop.orders: ") || words.startsWith("capture.shop.orders: ");
                assertTrue(hasPlace && words.length() > 20, words);
                return "refused";
            }
            if (converted == null) return "nothing";
            if (converted.topic().equals(record.topic())) return "text";
            assertEquals("main.shop.orders", converted.topic());
            Change change = Change.decode((byte[]) converted.value());
            assertArrayEquals(Raw.document(Raw.int64("_id", 5)), CanonicalKey.of((byte[]) converted.key()));
            return change.getClass().getSimpleName();
        });
        assertEquals(6, seen.size(), seen::toString);
    }

    private static SourceRecord record(Random random) {
        Schema source = source(random);
        Schema description = SchemaBuilder.struct()
                .optional()
                .field("updatedFields", Schema.OPTIONAL_STRING_SCHEMA)
                .build();
        SchemaBuilder envelope = SchemaBuilder.struct();
        Schema text = random.nextInt(20) == 0 ? Schema.OPTIONAL_INT64_SCHEMA : Schema.OPTIONAL_STRING_SCHEMA;
        if (often(random)) envelope.field("before", text);
        if (often(random)) envelope.field("after", text);
        if (often(random)) envelope.field("updateDescription", description);
        if (often(random)) envelope.field("source", source);
        if (often(random)) envelope.field("op", Schema.OPTIONAL_STRING_SCHEMA);
        if (often(random)) envelope.field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA);
        Struct value = new Struct(envelope.build());
        put(random, value, "before", text.type() == Schema.Type.INT64 ? 5L : carried(random));
        put(random, value, "after", text.type() == Schema.Type.INT64 ? 5L : after(random));
        if (random.nextInt(3) == 0) put(random, value, "updateDescription", new Struct(description));
        if (source.type() == Schema.Type.STRUCT) put(random, value, "source", filled(random, source));
        else put(random, value, "source", "shop");
        String[] operations = {"r", "c", "u", "u", "u", "d", "t", "m", "", "read"};
        put(random, value, "op", operations[random.nextInt(operations.length)]);
        put(random, value, "ts_ms", 1_700_000_009_999L);
        return new SourceRecord(
                Map.of("server_id", "capture"),
                offset(random),
                "capture.shop.orders",
                null,
                null,
                value.schema(),
                value);
    }

    private static Schema source(Random random) {
        if (random.nextInt(30) == 0) return Schema.OPTIONAL_STRING_SCHEMA;
        SchemaBuilder source = SchemaBuilder.struct().optional();
        if (often(random)) source.field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA);
        if (often(random)) source.field("db", Schema.OPTIONAL_STRING_SCHEMA);
        if (often(random)) source.field("collection", Schema.OPTIONAL_STRING_SCHEMA);
        return source.build();
    }

    private static Struct filled(Random random, Schema schema) {
        Struct source = new Struct(schema);
        put(random, source, "ts_ms", 1_700_000_000_123L);
        put(random, source, "db", "shop");
        put(random, source, "collection", "orders");
        return source;
    }

    private static void put(Random random, Struct in, String field, Object value) {
        if (in.schema().field(field) != null && often(random)) in.put(field, value);
    }

    private static String carried(Random random) {
        return switch (random.nextInt(6)) {
            case 0 -> JSON[random.nextInt(JSON.length)];
            case 1 -> BsonText.of(cut(random, BEFORE));
            case 2 -> BsonText.of(Raw.document(
                    Raw.embedded("documentKey", ID), ODD_DESCRIPTIONS[random.nextInt(ODD_DESCRIPTIONS.length)]));
            case 3 -> BsonText.of(Raw.document(Raw.int32("documentKey", 5)));
            default -> BsonText.of(BEFORE);
        };
    }

    private static String after(Random random) {
        return switch (random.nextInt(6)) {
            case 0 -> JSON[random.nextInt(JSON.length)];
            case 1 -> BsonText.of(cut(random, DOCUMENT));
            case 2 -> BsonText.of(Raw.document(Raw.int32("x", 5)));
            default -> BsonText.of(DOCUMENT);
        };
    }

    /** Garbage with another {@code _id} would be another document's, which no one can tell here. */
    private static byte[] cut(Random random, byte[] good) {
        byte[] bad = new Garbage(random).like(good);
        return random.nextBoolean() ? java.util.Arrays.copyOf(good, random.nextInt(good.length)) : Raw.join(bad, bad);
    }

    private static Map<String, Object> offset(Random random) {
        Map<String, Object> offset = new HashMap<>();
        if (random.nextInt(20) == 0) return null;
        if (often(random)) offset.put("sec", random.nextInt(10) == 0 ? "x" : 1_700_000_000);
        if (often(random)) offset.put("ord", random.nextInt(10) == 0 ? -1L : 7);
        if (random.nextBoolean()) offset.put("resume_token", token(random));
        return offset;
    }

    private static Object token(Random random) {
        String[] datas = {"8265A0B1C2000000072B", "82", "zz", "", "0165A0B1C200000007", "8265A0B1C20"};
        byte[] token = Raw.document(Raw.string("_data", datas[random.nextInt(datas.length)]));
        return switch (random.nextInt(5)) {
            case 0 -> 5;
            case 1 -> "not base 64";
            case 2 -> Base64.getEncoder().encodeToString(new Garbage(random).like(token));
            case 3 -> Base64.getEncoder().encodeToString(Raw.document(Raw.int32("_data", 5)));
            default -> Base64.getEncoder().encodeToString(token);
        };
    }

    private static boolean often(Random random) {
        return random.nextInt(12) > 0;
    }
}
