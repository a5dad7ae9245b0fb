package io.towpath.source.copy;

import java.util.Arrays;
import org.bson.BsonBinaryWriter;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;

/**
 * Which keys the driver sends unchanged in a command. It writes documents within commands field by field, each name once, and strings
 * as valid UTF-8: an {@code _id} with a duplicate name would become another one. Such an {@code _id} must not bound a read.
 */
public final class DriverKey {
    private DriverKey() {}

    public static boolean isExact(byte[] key) {
        BasicOutputBuffer out = new BasicOutputBuffer(key.length);
        try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
            new BsonDocumentCodec()
                    .encode(
                            writer,
                            new RawBsonDocument(key),
                            EncoderContext.builder().build());
            return Arrays.equals(out.toByteArray(), key);
        }
    }
}
