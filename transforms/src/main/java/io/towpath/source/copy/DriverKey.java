package io.towpath.source;

import java.util.Arrays;
import org.bson.BsonBinaryWriter;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;

/**
 * Which keys the driver can put into a command as they are. It writes documents within commands field by field, once a name, and
 * strings as valid UTF-8: an {@code _id} with a name that occurs twice would become another one. Such an {@code _id} must not bound
 * what is read.
 */
final class Carried {
    private Carried() {}

    static boolean asItIs(byte[] key) {
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
