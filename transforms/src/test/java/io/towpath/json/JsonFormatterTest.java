package io.towpath.json;

import static io.towpath.json.LogRecords.bson;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.Chunks;
import io.towpath.support.Fuzz;
import io.towpath.support.Garbage;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.junit.jupiter.api.Test;

class JsonFormatterTest {
    private static final String HEADER = "1 u 1700000000:7 1700000000123";
    private static final String KEY = "{\"_id\": 5}";

    private static String printed(byte[] key, byte[] value, byte[] header) {
        ConsumerRecord<byte[], byte[]> record = new ConsumerRecord<>("p.d.c", 3, 508, key, value);
        if (header != null) record.headers().add("v", header);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        new JsonFormatter().writeTo(record, new PrintStream(bytes, true, UTF_8));
        String text = bytes.toString(UTF_8);
        assertEquals(text.length() - 1, text.indexOf('\n'), text);
        return text.stripTrailing();
    }

    private static String printed(byte[] key, byte[] value, String header) {
        return printed(key, value, header.getBytes(UTF_8));
    }

    private static String[] columns(String line) {
        String[] columns = line.split("\t", -1);
        assertEquals(6, columns.length, line);
        return columns;
    }

    @Test
    void aRecordIsALineWithItsHeaderInWords() {
        assertEquals(
                "p.d.c-3@508\t2023-11-14T22:13:20.123Z\t1700000000:7\tu\t" + KEY + "\t" + LogRecords.UPDATE_JSON,
                printed(LogRecords.KEY, LogRecords.UPDATE, HEADER + " row-follows"));
        assertEquals(
                "p.d.c-3@508\t2023-11-14T22:13:20Z\t1700000000:8\td\t" + KEY + "\tnull",
                printed(LogRecords.KEY, null, "1 d 1700000000:8 1700000000000"));
        assertEquals(
                "p.d.c-3@508\t-\t-\t-\t" + KEY
                        + "\t{\"_id\": 5, \"total\": 70, \"at\": {\"$date\": \"2026-11-21T14:42:38Z\"}}",
                printed(LogRecords.KEY, LogRecords.DOCUMENT, (byte[]) null));
        assertEquals(
                "p.d.c-3@508\t2023-11-14T22:13:20.123Z\t1700000000:7\tddl\t" + LogRecords.DROP_KEY
                        + "\t{\"ddl\": \"drop\", \"ns\": \"d.c\", \"topics\": {\"p.d.c\": 4}}",
                printed(LogRecords.DROP.key(), LogRecords.DROP.value(), HEADER.replace(" u ", " ddl ")));
    }

    @Test
    void aValueInChunksIsNamedAndAChunkOnlyHasASize() {
        Chunks chunks = new Chunks(new byte[Chunks.ID_BYTES], 2, 90, true);
        String of = "{\"$binary\": {\"base64\": \"AAAAAAAAAAAAAAAAAAAAAA==\", \"subType\": \"00\"}}";
        assertEquals(
                "{\"$chunks\": {\"of\": " + of + ", \"count\": 2, \"size\": 90, \"document\": true}}",
                columns(printed(LogRecords.KEY, chunks.value(), HEADER))[5]);
        String[] chunk = columns(printed(chunks.key(LogRecords.KEY, 1), chunks.chunk(new byte[90], 1), HEADER));
        assertEquals("{\"chunk\": 1, \"of\": " + of + ", \"_id\": 5}", chunk[4]);
        assertEquals("{\"$chunk\": \"45 bytes\"}", chunk[5]);
    }

    @Test
    void aRecordThatBreaksTheContractSaysWhy() {
        assertTrue(foreign(LogRecords.KEY, bson("{_id: 6}"), HEADER)
                .startsWith("{\"foreign\": \"its document has another _id than its key\", \"bson\": {\"_id\": 6}}"));
        assertTrue(foreign(bson("{_id: 5}"), LogRecords.UPDATE, HEADER).contains("in the canonical form"));
        assertTrue(foreign(LogRecords.KEY, LogRecords.UPDATE, "2 u 1:1 1").contains("has version '2'"));
        assertTrue(foreign(null, LogRecords.UPDATE, HEADER).contains("it has no key"));
        assertTrue(foreign(bson("{x: 1}"), null, HEADER).contains("its key has no _id"));
        assertTrue(foreign(LogRecords.DROP.key(), null, HEADER).contains("with a value"));
        assertTrue(foreign(LogRecords.DROP.key(), bson("{ddl: 'other', ns: 'd.c', topics: {}}"), HEADER)
                .contains("no kind of schema change"));
    }

    private static String foreign(byte[] key, byte[] value, String header) {
        String text = columns(printed(key, value, header))[5];
        assertTrue(text.startsWith("{\"foreign\": "), text);
        return text;
    }

    @Test
    void anOddHeaderIsShownAsItIs() {
        assertEquals("soon", columns(printed(LogRecords.KEY, null, "1 d when soon"))[1]);
        String tooLarge = "99999999999999999999";
        assertEquals(tooLarge, columns(printed(LogRecords.KEY, null, "1 d 1:1 " + tooLarge))[1]);
        assertEquals("a?b", columns(printed(LogRecords.KEY, null, "1 a\tb 1:1 1"))[3]);
        assertEquals("-", columns(printed(LogRecords.KEY, null, "1"))[3]);
    }

    @Test
    void noRecordStopsTheReader() {
        Fuzz.run("printed", 6_000, random -> {
            Garbage garbage = new Garbage(random);
            byte[] key = random.nextBoolean() ? LogRecords.KEY : garbage.like(LogRecords.KEY);
            byte[] value = random.nextBoolean() ? LogRecords.DROP.value() : garbage.like(LogRecords.UPDATE);
            byte[] header = random.nextBoolean() ? HEADER.getBytes(UTF_8) : garbage.like(HEADER.getBytes(UTF_8));
            return columns(printed(key, value, header))[5].startsWith("{\"foreign\"") ? "foreign" : "shown";
        });
    }
}
