package io.towpath.record;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.BsonWriter;
import org.bson.ByteBuf;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.BsonValueCodecProvider;
import org.bson.codecs.Codec;
import org.bson.codecs.EncoderContext;
import org.bson.codecs.RawBsonDocumentCodec;
import org.bson.codecs.configuration.CodecProvider;
import org.bson.codecs.configuration.CodecRegistries;
import org.bson.codecs.configuration.CodecRegistry;
import org.bson.io.BasicOutputBuffer;

/** The bytes of documents; those of a raw document are copied unchanged, also where it is part of another. */
public final class BsonBytes {
    private static final RawBsonDocumentCodec RAW = new RawBsonDocumentCodec();
    private static final Codec<BsonDocument> CODEC = CodecRegistries.fromProviders(
                    new RawInsideProvider(), new BsonValueCodecProvider())
            .get(BsonDocument.class);

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
            CODEC.encode(writer, document, EncoderContext.builder().build());
        }
        return out.toByteArray();
    }

    /** The document of one field. */
    public static byte[] ofField(byte type, byte[] name, byte[] bytes, int start, int end) {
        int length = Integer.BYTES + 1 + name.length + 1 + end - start + 1;
        return ByteBuffer.allocate(length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putInt(length)
                .put(type)
                .put(name)
                .put((byte) 0)
                .put(bytes, start, end - start)
                .put((byte) 0)
                .array();
    }

    /** The driver's own codec would decode raw documents inside others, and lose what decoding loses. */
    private static final class RawInside extends BsonDocumentCodec {
        RawInside(CodecRegistry registry) {
            super(registry);
        }

        @Override
        public void encode(BsonWriter writer, BsonDocument document, EncoderContext context) {
            if (document instanceof RawBsonDocument raw) RAW.encode(writer, raw, context);
            else super.encode(writer, document, context);
        }
    }

    private static final class RawInsideProvider implements CodecProvider {
        @Override
        @SuppressWarnings("unchecked")
        public <T> Codec<T> get(Class<T> type, CodecRegistry registry) {
            return type == BsonDocument.class ? (Codec<T>) new RawInside(registry) : null;
        }
    }
}
