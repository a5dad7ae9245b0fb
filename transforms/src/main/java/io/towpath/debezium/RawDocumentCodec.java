package io.towpath.debezium;

import org.bson.BsonDocument;
import org.bson.BsonReader;
import org.bson.BsonWriter;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.Codec;
import org.bson.codecs.DecoderContext;
import org.bson.codecs.EncoderContext;

/** Reads every document as a {@link RawDocument}; writes any kind. */
final class RawDocumentCodec implements Codec<BsonDocument> {
    private final DocumentBytesCodec bytes = new DocumentBytesCodec();
    private final BsonDocumentCodec plain = new BsonDocumentCodec();

    @Override
    public BsonDocument decode(BsonReader reader, DecoderContext context) {
        return new RawDocument(bytes.decode(reader, context));
    }

    @Override
    public void encode(BsonWriter writer, BsonDocument document, EncoderContext context) {
        if (document instanceof RawDocument raw) bytes.encode(writer, raw.bytes(), context);
        else plain.encode(writer, document, context);
    }

    @Override
    public Class<BsonDocument> getEncoderClass() {
        return BsonDocument.class;
    }
}
