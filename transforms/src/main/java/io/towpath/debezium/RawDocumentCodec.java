package io.towpath.debezium;

import org.bson.BsonBinaryReader;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.BsonReader;
import org.bson.BsonWriter;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.Codec;
import org.bson.codecs.DecoderContext;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;

/** Reads every document as a {@link RawDocument}; writes any kind. */
final class RawDocumentCodec implements Codec<BsonDocument> {
    private final BsonDocumentCodec plain = new BsonDocumentCodec();

    @Override
    public BsonDocument decode(BsonReader reader, DecoderContext context) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        try (BsonBinaryWriter writer = new BsonBinaryWriter(out)) {
            writer.pipe(reader);
        }
        return new RawDocument(out.toByteArray());
    }

    @Override
    public void encode(BsonWriter writer, BsonDocument document, EncoderContext context) {
        if (document instanceof RawDocument raw) {
            try (BsonBinaryReader reader = (BsonBinaryReader) raw.asBsonReader()) {
                writer.pipe(reader);
            }
        } else {
            plain.encode(writer, document, context);
        }
    }

    @Override
    public Class<BsonDocument> getEncoderClass() {
        return BsonDocument.class;
    }
}
