package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.support.Raw;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.connect.errors.ConnectException;
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
                "{namespace: 'orders', ids: [1]}",
                "{namespace: 'a.', ids: [1]}",
                "{namespace: '', ids: [1]}",
                "{namespace: 'a b.c', ids: [1]}",
                "{resnapshot: 5}",
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

    @Test
    void anIdThatNoDocumentCanBeReadByHasAReason() {
        byte[] value = BsonBytes.of(BsonDocument.parse(
                "{namespace: 'a.b', ids: [{$id: 5}, {$ref: 5}, {$: 1}, [1], /x/, 1, {a: 1}, {$ref: 'c', $id: 5}]}"));

        List<String> readable = RereadRequest.of(1, value).keys().stream()
                .filter(key -> RereadRequest.oddity(key).isEmpty())
                .map(RereadRequestTest::text)
                .toList();

        assertEquals(
                List.of("{\"_id\": 1}", "{\"_id\": {\"a\": 1}}", "{\"_id\": {\"$ref\": \"c\", \"$id\": 5}}"), readable);
    }

    /** Another document, or none, would be read by what the driver sends, and none means a delete. */
    @Test
    void anIdThatNoDriverSendsUnchangedHasAReason() {
        byte[] notUtf8 = {3, 0, 0, 0, (byte) 0xC3, 0x28, 0};
        byte[] key = CanonicalKey.of(Raw.document(Raw.element(2, "_id", notUtf8)));
        assertEquals(Optional.of("no driver sends such an _id unchanged"), RereadRequest.oddity(key));
        assertThrows(ConnectException.class, () -> RereadRequest.of("a.b", List.of(key)));
    }

    @Test
    void documentsThatChangedMeanwhileAreReadInTheServersOrder() {
        List<byte[]> keys = Stream.of("'b'", "2", "'a'", "1")
                .map(id -> CanonicalKey.of(BsonBytes.of(BsonDocument.parse("{_id: %s}".formatted(id)))))
                .toList();
        assertEquals(
                List.of("{\"_id\": 1}", "{\"_id\": 2}", "{\"_id\": \"a\"}", "{\"_id\": \"b\"}"),
                RereadRequest.of("a.b", keys).keys().stream()
                        .map(RereadRequestTest::text)
                        .toList());
    }

    @Test
    void damagedBytesAreRefusedAndNothingElse() {
        byte[] whole =
                BsonBytes.of(BsonDocument.parse("{namespace: 'a.b', ids: [1, 'x', {$id: 5}, [1]], resnapshot: 'r'}"));
        Random random = new Random(1);
        int refused = 0;
        for (int run = 0; run < 20_000; run++) {
            byte[] damaged = whole.clone();
            for (int n = 0; n <= run % 3; n++) damaged[random.nextInt(damaged.length)] = (byte) random.nextInt();
            try {
                RereadRequest.of(1, damaged).keys().forEach(RereadRequest::oddity);
            } catch (DataException expected) {
                refused++;
            }
        }
        assertTrue(refused > 5_000, "refused: " + refused);
    }

    private static String text(byte[] key) {
        return new RawBsonDocument(key).toJson().replaceAll("\\{\"\\$number\\w+\": \"([^\"]+)\"}", "$1");
    }
}
