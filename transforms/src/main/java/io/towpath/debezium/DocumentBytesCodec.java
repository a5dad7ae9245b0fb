package io.towpath.debezium;

import java.nio.ByteBuffer;
import org.bson.BsonBinaryReader;
import org.bson.BsonBinaryWriter;
import org.bson.BsonReader;
import org.bson.BsonWriter;
import org.bson.codecs.Codec;
import org.bson.codecs.DecoderContext;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;

/** Decodes a document as its own bytes. */
public final class DocumentBytesCodec implements Codec<byte[]> {
    @Override
    public byte[] decode(BsonReader reader, DecoderContext context) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
            writer.pipe(reader);
        }
        return out.toByteArray();
    }

    @Override
    public void encode(BsonWriter writer, byte[] document, EncoderContext context) {
        try (BsonBinaryReader reader = new BsonBinaryReader(ByteBuffer.wrap(document))) {
            writer.pipe(reader);
        }
    }

    @Override
    public Class<byte[]> getEncoderClass() {
        return byte[].class;
    }
}
