package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.support.Raw;
import java.util.List;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RereadRequestTest {
    @Test
    void idsAreTakenOnceInTheServersOrderWhateverTheirTypes() {
        byte[] value = Raw.document(
                Raw.string("namespace", "shop.orders"),
                Raw.array(
                        "ids",
                        Raw.string("0", "b"),
                        Raw.int32("1", 5),
                        Raw.doubleOf("2", 5.0),
                        Raw.symbol("3", "b"),
                        Raw.embedded("4", Raw.int32("a", 1)),
                        Raw.doubleOf("5", -1.5)));

        RereadRequest request = RereadRequest.of(7, value);

        assertEquals(7, request.offset());
        assertEquals("shop.orders", request.namespace());
        assertEquals(
                List.of("{\"_id\": -1.5}", "{\"_id\": 5}", "{\"_id\": \"b\"}", "{\"_id\": {\"a\": 1}}"),
                request.keys().stream().map(RereadRequestTest::text).toList());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{}",
                "{namespace: 'a.b'}",
                "{namespace: 'a.b', ids: []}",
                "{namespace: 5, ids: [1]}",
                "{ids: [1]}"
            })
    void anythingElseIsRefusedWithItsOffset(String json) {
        byte[] value = BsonBytes.of(BsonDocument.parse(json));
        String message = assertThrows(DataException.class, () -> RereadRequest.of(9, value))
                .getMessage();
        assertTrue(message.startsWith("request 9 is not {namespace:"), message);
    }

    @Test
    void aRequestWithoutAValueOrWithADamagedOneIsRefused() {
        assertThrows(DataException.class, () -> RereadRequest.of(1, null));
        assertThrows(DataException.class, () -> RereadRequest.of(1, new byte[] {9, 0, 0, 0, 1}));
    }

    private static String text(byte[] key) {
        return new RawBsonDocument(key).toJson().replaceAll("\\{\"\\$number\\w+\": \"([^\"]+)\"}", "$1");
    }
}
