package io.towpath.sink.model;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.towpath.record.BsonElements;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Optional;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** The filter that matches a document by its {@code _id}, byte for byte. */
public final class IdFilter {
    private static final byte[] EQ = "$eq".getBytes(US_ASCII);

    private IdFilter() {}

    /** The filter for the {@code _id} of a document or key; empty when it has none. */
    public static Optional<BsonDocument> of(byte[] document) {
        BsonElements elements = new BsonElements(document, 0);
        while (elements.next()) {
            if (!elements.nameIs(BsonElements.ID)) continue;
            ByteBuffer value =
                    ByteBuffer.wrap(document, elements.valueStart(), elements.valueEnd() - elements.valueStart());
            if (elements.type() != BsonElements.DOCUMENT)
                return Optional.of(new RawBsonDocument(single(elements.type(), BsonElements.ID, value)));
            // compared as a whole, so that the server takes no name in it for an operator
            byte[] compared = single(BsonElements.DOCUMENT, EQ, value);
            return Optional.of(
                    new RawBsonDocument(single(BsonElements.DOCUMENT, BsonElements.ID, ByteBuffer.wrap(compared))));
        }
        return Optional.empty();
    }

    /** The BSON of one field. */
    private static byte[] single(byte type, byte[] name, ByteBuffer value) {
        int length = Integer.BYTES + 1 + name.length + 1 + value.remaining() + 1;
        ByteBuffer document = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
        return document.putInt(length)
                .put(type)
                .put(name)
                .put((byte) 0)
                .put(value)
                .put((byte) 0)
                .array();
    }
}
