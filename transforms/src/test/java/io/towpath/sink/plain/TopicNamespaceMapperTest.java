package io.towpath.sink.plain;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ContractException;
import io.towpath.support.Raw;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.junit.jupiter.api.Test;

class TopicNamespaceMapperTest {
    @Test
    void plainModeRefusesARecordOfALaterVersionToo() {
        assertEquals("shop.orders", namespace("1 d 1:1 1"));
        assertThrows(ContractException.class, () -> namespace("2 d 1:1 1"));
    }

    private static String namespace(String header) {
        byte[] key = CanonicalKey.of(Raw.document(Raw.int64("_id", 1)));
        SinkRecord record = new SinkRecord("p.shop.orders", 0, null, key, null, null, 0);
        record.headers().addBytes("v", header.getBytes(UTF_8));
        SinkDocument decoded = new SinkDocument(new BsonDocument("_id", new BsonInt64(1)), null);
        return new TopicNamespaceMapper().getNamespace(record, decoded).getFullName();
    }
}
