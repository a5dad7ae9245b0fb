package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.connector.TextHeaders;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.source.progress.Progress;
import io.towpath.source.rules.Rules;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;

class RereadAnswerTest {
    /** Under a collation the server finds "b" by "B": that is no answer to "B". */
    @Test
    void theKeysThatNoDocumentHasAreDeletedBeforeTheRows() {
        Map<ByteBuffer, byte[]> found = new LinkedHashMap<>();
        for (String id : List.of("b", "c"))
            found.put(ByteBuffer.wrap(key(id)), BsonBytes.of(BsonDocument.parse("{_id: '%s', x: 1}".formatted(id))));
        ClusterTime time = new ClusterTime(5, 7);
        List<byte[]> keys = Stream.of("A", "B", "c").map(RereadAnswerTest::key).toList();
        Map<String, Long> offset = Map.of("next", 5L);

        RereadAnswer answer = new RereadAnswer("shop.orders", time, keys, found);
        List<String> records = answer
                .records(
                        new Progress("p", null, null, null, Rules.NONE), answer.gone(), Map.of("requests", "r"), offset)
                .stream()
                .map(record -> {
                    assertEquals(offset, record.sourceOffset());
                    String id = new RawBsonDocument((byte[]) record.key())
                            .getString("_id")
                            .getValue();
                    String value = record.value() == null ? "gone" : "there";
                    return record.topic() + " " + id + " " + value + " "
                            + TextHeaders.read(record, RecordHeaders.Part.OPERATION)
                                    .orElseThrow() + " "
                            + TextHeaders.read(record, RecordHeaders.Part.TIME).orElseThrow();
                })
                .toList();

        assertEquals(
                List.of(
                        "p.shop.orders A gone d 5:7",
                        "p.shop.orders B gone d 5:7",
                        "p.shop.orders b there r 5:7",
                        "p.shop.orders c there r 5:7"),
                records);
    }

    private static byte[] key(String id) {
        return CanonicalKey.of(BsonBytes.of(BsonDocument.parse("{_id: '%s'}".formatted(id))));
    }
}
