package io.towpath.sink.plain;

import com.mongodb.kafka.connect.sink.converter.SinkDocument;
import java.util.Optional;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonBinary;
import org.bson.BsonDocument;

/**
 * The bytes of a record on their way from the mapper, which gets the record from mongo-kafka, to the handler, which gets only decoded
 * documents. They travel in the decoded key, which belongs to this record alone. So nothing is lost in decoding: duplicate names, strings
 * that are not UTF-8, the order of a regex's options.
 *
 * @param key {@code {_id: …}}
 * @param value a document, an update, or null
 */
record RawRecord(byte[] key, byte[] value) {
    private static final String KEY = "towpath.key";
    private static final String VALUE = "towpath.value";

    static void attach(SinkRecord record, SinkDocument decoded) {
        BsonDocument keyDocument = decoded.getKeyDoc().orElse(null);
        if (keyDocument == null || !(record.key() instanceof byte[] key)) return;
        keyDocument.put(KEY, new BsonBinary(key));
        if (record.value() instanceof byte[] value) keyDocument.put(VALUE, new BsonBinary(value));
    }

    /** Empty when nothing was attached. */
    static Optional<RawRecord> in(SinkDocument decoded) {
        return decoded.getKeyDoc()
                .filter(document -> document.containsKey(KEY))
                .map(document -> new RawRecord(
                        document.getBinary(KEY).getData(),
                        document.containsKey(VALUE) ? document.getBinary(VALUE).getData() : null));
    }
}
