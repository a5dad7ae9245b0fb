package io.towpath.json;

import static io.towpath.json.LogRecords.bson;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Fuzz;
import io.towpath.support.Garbage;
import java.util.Map;
import org.bson.BsonDocument;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;
import org.junit.jupiter.api.Test;

class JsonDeserializerTest {
    private static final JsonDeserializer JSON = new JsonDeserializer();

    private static String shown(byte[] bytes) {
        return JSON.deserialize("p.d.c", bytes);
    }

    @Test
    void eachKindOfRecordIsShownAsItIs() {
        assertEquals("{\"_id\": 5}", shown(LogRecords.KEY));
        assertEquals(
                "{\"_id\": 5, \"total\": 70, \"at\": {\"$date\": \"2026-11-21T14:42:38Z\"}}",
                shown(LogRecords.DOCUMENT));
        assertEquals(LogRecords.UPDATE_JSON, shown(LogRecords.UPDATE));
        assertNull(shown(null));
        assertEquals(LogRecords.DROP_KEY, shown(LogRecords.DROP.key()));
        assertEquals(
                "{\"ddl\": \"drop\", \"ns\": \"d.c\", \"topics\": {\"p.d.c\": 4}}", shown(LogRecords.DROP.value()));
    }

    /** Read again, the text gives the same values; the relaxed mode only omits which integers are int64. */
    @Test
    void everyTypeIsShown() {
        String text = shown(LogRecords.EVERY_TYPE);
        for (String part : new String[] {
            "\"double\": 0.1",
            "\"nan\": {\"$numberDouble\": \"NaN\"}",
            "\"negative zero\": -0.0",
            "\"binary\": {\"$binary\": {\"base64\": \"AQID\", \"subType\": \"00\"}}",
            "\"undefined\": {\"$undefined\": true}",
            "\"objectId\": {\"$oid\": \"000000000000000000000000\"}",
            "\"regex\": {\"$regularExpression\": {\"pattern\": \"a.*b\", \"options\": \"ims\"}}",
            "\"scoped\": {\"$code\": \"g()\", \"$scope\": {\"x\": 1}}",
            "\"timestamp\": {\"$timestamp\": {\"t\": 5, \"i\": 4294967289}}",
            "\"int64\": 5",
            "\"decimal\": {\"$numberDecimal\": \"1.2300E+5\"}",
        }) assertTrue(text.contains(part), () -> part + " in " + text);
        assertTrue(
                text.contains("\"document\": {\"\": \"no name\", \"a.b\": \"dot\", \"$x\": \"dollar\", \"x\": 1}"),
                text);
        JsonWriterSettings relaxed =
                JsonWriterSettings.builder().outputMode(JsonMode.RELAXED).build();
        assertEquals(text, BsonDocument.parse(text).toJson(relaxed));
    }

    @Test
    void whatBreaksTheContractIsShownWithItsReason() {
        assertEquals(
                "{\"foreign\": \"a value with the field 'x' and without an _id is neither a document nor an update\", \"bson\": {\"x\": 1}}",
                shown(bson("{x: 1}")));
        String text = shown("hello".getBytes(UTF_8));
        assertTrue(text.startsWith("{\"foreign\": \"BSON "), text);
        assertTrue(text.endsWith("\"bytes\": 5, \"hex\": \"68656c6c6f\"}"), text);
        assertTrue(shown(new byte[0]).endsWith("\"bytes\": 0, \"hex\": \"\"}"));
        BsonDocument large = BsonDocument.parse(shown(new byte[5_000]));
        assertEquals(5_000, large.getInt32("bytes").getValue());
        assertEquals(2 * 1024, large.getString("hex").getValue().length());
    }

    @Test
    void noBytesStopTheReader() {
        Map<String, Integer> seen = Fuzz.run("shown", 20_000, random -> {
            byte[] good = random.nextBoolean() ? LogRecords.EVERY_TYPE : LogRecords.UPDATE;
            String text = shown(new Garbage(random).like(good));
            assertTrue(text.startsWith("{") && text.endsWith("}") && text.indexOf('\n') < 0, text);
            return text.startsWith("{\"foreign\"") ? "foreign" : "shown";
        });
        assertEquals(2, seen.size(), seen::toString);
    }
}
