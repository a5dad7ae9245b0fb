package io.towpath.record;

import java.util.List;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonValue;

/**
 * BSON arrays as JSON text. The driver converts only documents, and to parse an array alone is not safe: BsonArrayCodec and
 * BsonDocumentCodec need each other to initialize, so two threads that begin with one each deadlock.
 */
public final class JsonArrays {
    private JsonArrays() {}

    public static String of(List<? extends BsonValue> values) {
        String json = new BsonDocument("a", new BsonArray(values)).toJson();
        return json.substring(json.indexOf('['), json.lastIndexOf(']') + 1);
    }

    public static BsonArray parse(String json) {
        return BsonDocument.parse("{a: %s}".formatted(json)).getArray("a");
    }
}
