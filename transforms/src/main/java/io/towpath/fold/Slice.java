package io.towpath.fold;

import io.towpath.record.BsonElements;
import org.bson.io.BsonOutput;

/** An unchanged value; {@code end} is exclusive. */
record Slice(byte type, byte[] bytes, int start, int end) implements Value {
    static final Slice NULL = new Slice((byte) 0x0A, new byte[0], 0, 0);

    static Slice document(byte[] bytes) {
        return new Slice(BsonElements.DOCUMENT, bytes, 0, bytes.length);
    }

    @Override
    public void writeTo(BsonOutput out) {
        out.writeBytes(bytes, start, end - start);
    }
}
