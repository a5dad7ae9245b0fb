package io.towpath.sink.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.connector.TextHeaders;
import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.record.SchemaChange;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

class BarrierTest {
    private static final SchemaChange DROP = new SchemaChange(
            "5:2/0/d.a",
            SchemaChange.Kind.DROP,
            "d.a",
            "",
            false,
            new BsonDocument(),
            List.of(),
            false,
            Map.of("p.d.a", 4));
    private static final Headers HEADERS = TextHeaders.of(new RecordHeaders("ddl", new ClusterTime(5, 2), 5_000));

    @Test
    void aSchemaChangeIsReadWithWhereAndWhenItIs() {
        SinkRecord record = record("p.d.a", DROP.key(), DROP.value(), HEADERS);
        assertTrue(Barrier.is(record));
        assertTrue(Barrier.claims(record));
        Barrier barrier = Barrier.of(record);
        assertEquals(new Barrier(DROP, barrier.value(), "5:2", 5_000, 7, 9_000L), barrier);
    }

    @Test
    void aDocumentIsNone() {
        byte[] key = BsonBytes.of(BsonDocument.parse("{_id: 'ddl'}"));
        Headers headers = TextHeaders.of(new RecordHeaders("d", new ClusterTime(5, 2), 5_000));
        assertFalse(Barrier.is(record("p.d.a", key, null, headers)));
        assertFalse(Barrier.claims(record("p.d.a", key, null, headers)));
        assertFalse(Barrier.is(record("p.d.a", null, null, HEADERS)));
    }

    @Test
    void whatCannotBeReadStopsTheTask() {
        ConnectHeaders later = new ConnectHeaders();
        later.addString("v", "2 ddl 5:2 5000");
        for (SinkRecord record : List.of(
                record("p.d.b", DROP.key(), DROP.value(), HEADERS),
                record("p.d.a", DROP.key(), null, HEADERS),
                record("p.d.a", DROP.key(), new byte[] {1}, HEADERS),
                record("p.d.a", DROP.key(), DROP.value(), later))) {
            ConnectException stopped = assertThrows(ConnectException.class, () -> Barrier.of(record));
            assertTrue(stopped.getMessage().startsWith("TWP-SCHEMA-RECORD: "), stopped::getMessage);
        }
    }

    private static SinkRecord record(String topic, byte[] key, byte[] value, Headers headers) {
        return new SinkRecord(topic, 3, null, key, null, value, 7, 9_000L, TimestampType.LOG_APPEND_TIME, headers);
    }
}
