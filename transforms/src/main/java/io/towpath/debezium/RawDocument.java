package io.towpath.debezium;

import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import org.bson.BsonBinaryReader;
import org.bson.BsonDocument;
import org.bson.BsonReader;
import org.bson.BsonValue;
import org.bson.BsonWriter;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.DecoderContext;
import org.bson.codecs.EncoderContext;
import org.bson.codecs.RawBsonDocumentCodec;
import org.bson.json.JsonWriterSettings;

/** An immutable document that keeps its original bytes, and returns them as {@link BsonText} instead of JSON. */
final class RawDocument extends BsonDocument {
    private static final long serialVersionUID = 1L;

    /** Reads every document as a {@link RawDocument}; writes any kind. */
    static final class Codec extends BsonDocumentCodec {
        private static final RawBsonDocumentCodec RAW = new RawBsonDocumentCodec();

        @Override
        public BsonDocument decode(BsonReader reader, DecoderContext context) {
            return new RawDocument(RAW.decode(reader, context));
        }

        @Override
        public void encode(BsonWriter writer, BsonDocument document, EncoderContext context) {
            if (document instanceof RawDocument raw) RAW.encode(writer, raw.view, context);
            else super.encode(writer, document, context);
        }
    }

    private final RawBsonDocument view;

    private RawDocument(RawBsonDocument view) {
        this.view = view;
    }

    /** The bytes of a document of the hook's; 0 of any other, and of null. */
    static int length(BsonDocument document) {
        return document instanceof RawDocument raw ? raw.view.getByteBuffer().remaining() : 0;
    }

    @Override
    public String toJson() {
        ByteBuffer bytes = view.getByteBuffer().asNIO();
        return BsonText.of(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
    }

    @Override
    public String toJson(JsonWriterSettings settings) {
        return toJson();
    }

    @Override
    public String toString() {
        return view.toJson();
    }

    /** A mutable copy. */
    @Override
    public BsonDocument clone() {
        return view.decode(new BsonDocumentCodec());
    }

    @Override
    public BsonReader asBsonReader() {
        return new BsonBinaryReader(view.getByteBuffer().asNIO());
    }

    @Override
    public int size() {
        return view.size();
    }

    @Override
    public boolean isEmpty() {
        return view.isEmpty();
    }

    @Override
    public boolean containsKey(Object key) {
        return view.containsKey(key);
    }

    @Override
    public boolean containsValue(Object value) {
        return view.containsValue(value);
    }

    @Override
    public BsonValue get(Object key) {
        return view.get(key);
    }

    @Override
    public String getFirstKey() {
        return view.getFirstKey();
    }

    @Override
    public Set<String> keySet() {
        return view.keySet();
    }

    @Override
    public Collection<BsonValue> values() {
        return view.values();
    }

    @Override
    public Set<Map.Entry<String, BsonValue>> entrySet() {
        return view.entrySet();
    }

    @Override
    public BsonValue put(String key, BsonValue value) {
        throw immutable();
    }

    @Override
    public BsonDocument append(String key, BsonValue value) {
        throw immutable();
    }

    @Override
    public void putAll(Map<? extends String, ? extends BsonValue> values) {
        throw immutable();
    }

    @Override
    public BsonValue remove(Object key) {
        throw immutable();
    }

    @Override
    public void clear() {
        throw immutable();
    }

    @Override
    public boolean equals(Object other) {
        return view.equals(other);
    }

    @Override
    public int hashCode() {
        return view.hashCode();
    }

    private static UnsupportedOperationException immutable() {
        return new UnsupportedOperationException(
                "documents are passed on unchanged: field.exclude.list and field.renames cannot be used with mongodb.authentication.class=%s"
                        .formatted(RawDocuments.class.getName()));
    }
}
