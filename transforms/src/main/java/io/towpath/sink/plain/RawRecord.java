package io.towpath.sink;

import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import java.util.Optional;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonBinary;
import org.bson.BsonDocument;

/**
 * The bytes of a record on their way from the mapper, which mongo-kafka shows the record, to the handler, which it shows decoded
 * documents only. They lie in the decoded key, which is nothing but this record's. What decoding would lose stays: names that occur
 * twice, strings that are not UTF-8, a regex's options in any order.
 *
 * @param key {@code {_id: …}}
 * @param value a document, an update, or null
 */
record RawRecord(byte[] key, byte[] value) {
    private static final String KEY = "towpath.key";
    private static final String VALUE = "towpath.value";

    static void attach(SinkRecord record, SinkDocument decoded) {
        BsonDocument carrier = decoded.getKeyDoc().orElse(null);
        if (carrier == null || !(record.key() instanceof byte[] key)) return;
        carrier.put(KEY, new BsonBinary(key));
        if (record.value() instanceof byte[] value) carrier.put(VALUE, new BsonBinary(value));
    }

    /** Empty when nothing was attached. */
    static Optional<RawRecord> in(SinkDocument decoded) {
        return decoded.getKeyDoc()
                .filter(carrier -> carrier.containsKey(KEY))
                .map(carrier -> new RawRecord(
                        carrier.getBinary(KEY).getData(),
                        carrier.containsKey(VALUE) ? carrier.getBinary(VALUE).getData() : null));
    }
}
