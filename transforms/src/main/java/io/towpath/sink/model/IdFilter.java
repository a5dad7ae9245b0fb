package io.towpath.sink.model;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import java.util.Optional;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** The filter that matches a document by its {@code _id}, byte for byte. */
public final class IdFilter {
    private static final byte[] EQ = "$eq".getBytes(US_ASCII);

    private IdFilter() {}

    /** The filter for the {@code _id} of a document or key; empty when it has none. */
    public static Optional<BsonDocument> of(byte[] document) {
        return BsonElements.atId(document).map(id -> new RawBsonDocument(of(document, id)));
    }

    private static byte[] of(byte[] document, BsonElements id) {
        int start = id.valueStart();
        int end = id.valueEnd();
        if (id.type() != BsonElements.DOCUMENT)
            return BsonBytes.ofField(id.type(), BsonElements.ID, document, start, end);
        // compared as a whole, so that the server takes no name in it for an operator
        byte[] compared = BsonBytes.ofField(BsonElements.DOCUMENT, EQ, document, start, end);
        return BsonBytes.ofField(BsonElements.DOCUMENT, BsonElements.ID, compared, 0, compared.length);
    }
}
