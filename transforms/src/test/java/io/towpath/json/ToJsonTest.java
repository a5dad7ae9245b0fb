package io.towpath.json;

import static io.towpath.json.LogRecords.bson;
import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.CanonicalKey;
import io.towpath.support.Fuzz;
import io.towpath.support.Garbage;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.HoistField;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ToJsonTest {
    private static final String HEADER = "1 u 1700000000:7 1700000000123";
    private static final String META = ", \"__op\": \"u\", \"__ts_ms\": 1700000000123";
    private static final String DOCUMENT = "{\"_id\": 5, \"total\": 70, \"at\": \"2026-11-21T14:42:38Z\"";

    private static ToJson<SinkRecord> toJson(String... settings) {
        ToJson<SinkRecord> transform = new ToJson<>();
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i < settings.length; i += 2) given.put(settings[i], settings[i + 1]);
        transform.configure(given);
        return transform;
    }

    private static SinkRecord record(Object key, Object value, String header) {
        SinkRecord record = new SinkRecord("p.d.c", 3, null, key, null, value, 508, 17L, TimestampType.LOG_APPEND_TIME);
        if (header != null) record.headers().addBytes("v", header.getBytes(UTF_8));
        return record;
    }

    private static SinkRecord record(byte[] value) {
        return record(LogRecords.KEY, value, HEADER);
    }

    @Test
    void aDocumentBecomesJsonWithOperationAndTime() {
        SinkRecord given = record(LogRecords.DOCUMENT);
        SinkRecord json = toJson().apply(given);
        assertEquals(DOCUMENT + META + "}", json.value());
        assertEquals(Schema.STRING_SCHEMA, json.valueSchema());
        assertEquals("5", json.key());
        assertEquals(Schema.STRING_SCHEMA, json.keySchema());
        assertEquals(
                List.of(given.topic(), given.kafkaPartition(), given.kafkaOffset(), given.timestamp(), given.headers()),
                List.of(json.topic(), json.kafkaPartition(), json.kafkaOffset(), json.timestamp(), json.headers()));
    }

    @Test
    void withoutAHeaderNothingIsAdded() {
        assertEquals(
                DOCUMENT + "}",
                toJson().apply(record(LogRecords.KEY, LogRecords.DOCUMENT, null))
                        .value());
    }

    /** As Connect delivers it if the connector has the default header converter. */
    @Test
    void theHeaderIsReadAsConnectConvertsIt() {
        SinkRecord record = record(LogRecords.KEY, LogRecords.DOCUMENT, null);
        record.headers().add("v", new SimpleHeaderConverter().toConnectHeader("p.d.c", "v", HEADER.getBytes(UTF_8)));
        assertEquals(DOCUMENT + META + "}", toJson().apply(record).value());
    }

    @Test
    void aMapHasTheSameFieldsWithoutASchema() {
        SinkRecord map = toJson("format", "map").apply(record(LogRecords.DOCUMENT));
        assertNull(map.valueSchema());
        assertEquals(
                Map.of("_id", 5, "total", 70L, "at", "2026-11-21T14:42:38Z", "__op", "u", "__ts_ms", 1700000000123L),
                map.value());
    }

    @Test
    void everyTypeBecomesAValueOfJson() {
        String text = (String) toJson().apply(record(LogRecords.EVERY_TYPE)).value();
        for (String part : new String[] {
            "\"double\": 0.1",
            "\"nan\": \"NaN\"",
            "\"negative zero\": -0.0",
            "\"document\": {\"\": \"no name\", \"a.b\": \"dot\", \"$x\": \"dollar\", \"x\": 1}",
            "\"array\": [1, [], 1]",
            "\"binary\": \"AQID\"",
            "\"uuid\": \"00000000-0000-0000-0000-000000000000\"",
            "\"undefined\": null",
            "\"objectId\": \"000000000000000000000000\"",
            "\"true\": true",
            "\"null\": null",
            "\"regex\": \"/a.*b/ims\"",
            "\"dbPointer\": {",
            "\"$ref\": \"a.b\"",
            "\"code\": \"f()\"",
            "\"symbol\": \"s\"",
            "\"$scope\": {\"x\": 1}",
            "\"int32\": -5",
            "\"timestamp\": \"5:4294967289\"",
            "\"int64\": 5",
            "\"decimal\": \"1.2300E+5\"",
        }) assertTrue(text.contains(part), () -> part + " in " + text);
    }

    /** In the text of a key, other types than in JSON stay visible: else a string could be the text of an ObjectId. */
    @Test
    void differentIdsHaveDifferentKeys() {
        List<byte[]> ids = new ArrayList<>(List.of(
                Raw.string("_id", "000000000000000000000000"), Raw.string("_id", "5"), Raw.string("_id", "-5")));
        for (byte[] element : Raw.everyType()) {
            int name = new String(element, ISO_8859_1).indexOf('\0', 1);
            ids.add(Raw.join(
                    new byte[] {element[0]},
                    "_id\0".getBytes(UTF_8),
                    Arrays.copyOfRange(element, name + 1, element.length)));
        }
        List<String> keys = new ArrayList<>();
        List<byte[]> canonical = new ArrayList<>();
        for (byte[] id : ids) {
            byte[] key = CanonicalKey.of(Raw.document(id));
            if (canonical.stream().anyMatch(other -> Arrays.equals(other, key))) continue;
            canonical.add(key);
            String text = (String) toJson().apply(record(key, null, HEADER)).key();
            assertTrue(!keys.contains(text), text);
            keys.add(text);
        }
        assertTrue(keys.contains("\"5\"") && keys.contains("5") && keys.size() > 20, keys::toString);
    }

    @Test
    void aDeleteIsATombstoneOrRewritten() {
        SinkRecord tombstone = toJson().apply(record(null));
        assertEquals("5", tombstone.key());
        assertNull(tombstone.value());
        assertNull(tombstone.valueSchema());
        ToJson<SinkRecord> rewrite = toJson("deletes", "rewrite");
        assertEquals(
                "{\"_id\": 5, \"__deleted\": true, \"__op\": \"d\", \"__ts_ms\": 1700000000123}",
                rewrite.apply(record(LogRecords.KEY, null, HEADER.replace('u', 'd')))
                        .value());
        assertEquals(
                DOCUMENT + ", \"__deleted\": false" + META + "}",
                rewrite.apply(record(LogRecords.DOCUMENT)).value());
    }

    @Test
    void anUpdateIsAnErrorUnlessItIsDroppedOrPassed() {
        SinkRecord update = record(LogRecords.UPDATE);
        String refused =
                assertThrows(DataException.class, () -> toJson().apply(update)).getMessage();
        assertEquals("topic p.d.c, partition 3 has an update, and the setting updates of ToJson is fail", refused);
        assertNull(toJson("updates", "drop").apply(update));
        assertEquals(
                "{\"_id\": 5, " + LogRecords.UPDATE_JSON.substring(1, LogRecords.UPDATE_JSON.length() - 1) + META + "}",
                toJson("updates", "pass").apply(update).value());
    }

    @Test
    void aSchemaChangeIsDroppedUnlessItIsPassed() {
        SinkRecord drop = record(LogRecords.DROP.key(), LogRecords.DROP.value(), HEADER.replace(" u ", " ddl "));
        assertNull(toJson().apply(drop));
        assertThrows(DataException.class, () -> toJson("schema.changes", "fail").apply(drop));
        SinkRecord passed = toJson("schema.changes", "pass").apply(drop);
        assertEquals(LogRecords.DROP_KEY, passed.key());
        assertEquals(
                "{\"ddl\": \"drop\", \"ns\": \"d.c\", \"topics\": {\"p.d.c\": 4}, \"__op\": \"ddl\", \"__ts_ms\": 1700000000123}",
                passed.value());
    }

    /** What sinks of tables take: a struct with one field, and the key as a primitive. */
    @Test
    void kafkasHoistFieldMakesARowOfTheText() {
        try (HoistField.Value<SinkRecord> hoist = new HoistField.Value<>()) {
            hoist.configure(Map.of("field", "document"));
            SinkRecord row = hoist.apply(toJson().apply(record(LogRecords.DOCUMENT)));
            assertEquals(DOCUMENT + META + "}", ((Struct) row.value()).get("document"));
            assertEquals(
                    Schema.Type.STRING,
                    row.valueSchema().field("document").schema().type());
        }
    }

    @Test
    void whatIsNoRecordOfTheLogIsAnError() {
        for (SinkRecord foreign : List.of(
                record(null, LogRecords.DOCUMENT, HEADER),
                record("5", LogRecords.DOCUMENT, HEADER),
                record(LogRecords.KEY, "{}", HEADER),
                record(LogRecords.KEY, bson("{_id: 6}"), HEADER),
                record(LogRecords.KEY, bson("{x: 6}"), HEADER),
                record(bson("{_id: 5}"), LogRecords.DOCUMENT, HEADER),
                record(LogRecords.DROP.key(), null, HEADER),
                record(LogRecords.KEY, LogRecords.DOCUMENT, "1 u 1:1 soon"),
                record(LogRecords.KEY, LogRecords.DOCUMENT, "2 u 1:1 1"))) {
            String message = assertThrows(DataException.class, () -> toJson().apply(foreign))
                    .getMessage();
            assertTrue(message.startsWith("topic p.d.c: no record of Towpath's: "), message);
        }
    }

    @Test
    void garbageIsAnErrorForConnect() {
        ToJson<SinkRecord> transform = toJson("updates", "pass", "schema.changes", "pass");
        Map<String, Integer> seen = Fuzz.run("converted", 6_000, random -> {
            Garbage garbage = new Garbage(random);
            byte[] key = random.nextInt(4) > 0 ? LogRecords.KEY : garbage.like(LogRecords.KEY);
            byte[] value = garbage.like(random.nextBoolean() ? LogRecords.EVERY_TYPE : LogRecords.UPDATE);
            try {
                assertNotEquals(
                        null, transform.apply(record(key, value, HEADER)).value());
                return "converted";
            } catch (DataException refused) {
                return "refused";
            }
        });
        assertEquals(2, seen.size(), seen::toString);
    }

    @ParameterizedTest
    @ValueSource(strings = {"format", "deletes", "updates", "schema.changes"})
    void aSettingWithAnotherValueIsRejected(String setting) {
        ConfigException refused = assertThrows(ConfigException.class, () -> toJson(setting, "other"));
        assertTrue(refused.getMessage().contains(setting), refused.getMessage());
    }
}
