package io.towpath.json;

import io.towpath.record.Change;
import io.towpath.record.Chunks;
import io.towpath.record.ContractException;
import io.towpath.record.SchemaChange;
import io.towpath.record.WholeBson;
import java.util.HexFormat;
import java.util.Map;
import org.bson.BSONException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.Document;
import org.bson.RawBsonDocument;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;

/**
 * Keys and values of the log as one line of Extended JSON, in the relaxed mode: the canonical one has a document around every number and
 * date. The relaxed one only omits whether an integer is an int32 or an int64.
 */
final class LogJson {
    private static final JsonWriterSettings RELAXED =
            JsonWriterSettings.builder().outputMode(JsonMode.RELAXED).build();
    /** How many bytes of what is not BSON are shown. */
    private static final int SHOWN = 1024;

    private LogJson() {}

    /** A key or a value of the record contract as JSON, and anything else as {@link #foreign}. Null for null. Throws nothing. */
    static String of(byte[] bytes) {
        if (bytes == null) return null;
        try {
            WholeBson.require(bytes);
            if (!SchemaChange.isKey(bytes)
                    && !Chunks.isKey(bytes)
                    && !Chunks.areNamedIn(bytes)
                    && !Chunks.isChunk(bytes)) Change.decode(bytes);
            return text(bytes);
        } catch (ContractException | BSONException error) {
            return foreign(bytes, error.getMessage());
        }
    }

    /**
     * A value that breaks the contract, with the reason: {@code {"foreign": reason, "bson": {…}}}, or with {@code bytes} (how many) and
     * {@code hex} (the first of them) if it is not BSON. A document of the log always has an {@code _id}, so none looks like this.
     */
    static String foreign(byte[] bytes, String reason) {
        BsonDocument shown = new BsonDocument("foreign", new BsonString(reason));
        if (bytes == null) return shown.toJson(RELAXED);
        try {
            WholeBson.require(bytes);
            return shown.append("bson", new RawBsonDocument(bytes)).toJson(RELAXED);
        } catch (ContractException | BSONException error) {
            shown.remove("bson");
            String hex = HexFormat.of().formatHex(bytes, 0, Math.min(bytes.length, SHOWN));
            return shown.append("bytes", new BsonInt32(bytes.length))
                    .append("hex", new BsonString(hex))
                    .toJson(RELAXED);
        }
    }

    /** The one field of a key as JSON. */
    static String ofId(byte[] key) {
        String json = text(key);
        return json.substring(json.indexOf(':') + 2, json.length() - 1);
    }

    /** BSON as JSON; of a chunk, only how much it has. Throws {@link BSONException} for what the driver cannot decode. */
    static String text(byte[] bson) {
        if (Chunks.isChunk(bson)) return "{\"$chunk\": \"%d bytes\"}".formatted(Chunks.data(bson).length);
        return new RawBsonDocument(bson).toJson(RELAXED);
    }

    /** The values of {@link PlainValues} as JSON. */
    static String text(Map<String, Object> fields) {
        return new Document(fields).toJson(RELAXED);
    }
}
