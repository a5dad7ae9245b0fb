package io.towpath.record;

import java.util.List;
import java.util.Map;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.ByteBuf;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.EncoderContext;
import org.bson.codecs.RawBsonDocumentCodec;
import org.bson.io.BasicOutputBuffer;

/** The bytes of documents; those of a raw document are copied as they are. */
public final class BsonBytes {
    private static final BsonDocumentCodec DECODED = new BsonDocumentCodec();
    private static final RawBsonDocumentCodec RAW = new RawBsonDocumentCodec();

    private BsonBytes() {}

    public static byte[] of(BsonDocument document) {
        if (document instanceof RawBsonDocument raw) {
            ByteBuf buffer = raw.getByteBuffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return bytes;
        }
        BasicOutputBuffer out = new BasicOutputBuffer();
        try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
            write(writer, document);
        }
        return out.toByteArray();
    }

    /** One document of the named parts in this order, without those that are empty. */
    static byte[] ofParts(Map<String, BsonDocument> parts, List<String> order) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
            writer.writeStartDocument();
            for (String name : order) {
                if (parts.get(name).isEmpty()) continue;
                writer.writeName(name);
                write(writer, parts.get(name));
            }
            writer.writeEndDocument();
        }
        return out.toByteArray();
    }

    private static void write(BsonBinaryWriter writer, BsonDocument document) {
        EncoderContext context = EncoderContext.builder().build();
        if (document instanceof RawBsonDocument raw) RAW.encode(writer, raw, context);
        else DECODED.encode(writer, document, context);
    }
}
