package io.towpath.debezium;

import io.towpath.record.JsonArrays;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.common.config.ConfigException;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * The {@code cursor.pipeline} by which all parts of a change event reach the transform as bytes. The driver reads {@code documentKey} and
 * {@code updateDescription} with its own codecs, out of the hook's reach, and only {@code fullDocument} and
 * {@code fullDocumentBeforeChange} with ours. So the server puts both into the latter.
 */
public final class CursorPipeline {
    public static final String SETTING = "cursor.pipeline";
    public static final String KEY = "documentKey";
    public static final String DESCRIPTION = "updateDescription";
    /** Stands in place of everything else when the event itself is too large for the server to send. */
    public static final String OVERSIZED = "oversized";

    /** What {@code cursor.pipeline} must begin with. */
    public static final String PIPELINE =
            """
            [{"$set": {"fullDocumentBeforeChange": {"$cond": [{"$in": ["$operationType", ["update", "delete"]]}, \
            {"documentKey": "$documentKey", "updateDescription": "$updateDescription"}, "$$REMOVE"]}, \
            "updateDescription": "$$REMOVE"}}]""";

    private static final String ONLY_KEYS =
            """
            {"$set": {"fullDocument": {"$cond": [{"$in": ["$_id._data", %1$s]}, "$$REMOVE", "$fullDocument"]}, \
            "operationType": {"$cond": [{"$in": ["$_id._data", %1$s]}, "update", "$operationType"]}, \
            "fullDocumentBeforeChange": {"$cond": [{"$in": ["$_id._data", %1$s]}, \
            {"documentKey": "$documentKey", "oversized": true}, "$fullDocumentBeforeChange"]}}}""";

    private CursorPipeline() {}

    /** The stages. Of events with these resume tokens they keep only the key. */
    static List<BsonDocument> stages(Collection<String> oversized) {
        BsonArray stages = JsonArrays.parse(PIPELINE);
        if (!oversized.isEmpty()) {
            String tokens =
                    JsonArrays.of(oversized.stream().map(BsonString::new).toList());
            stages.add(BsonDocument.parse(ONLY_KEYS.formatted(tokens)));
        }
        return stages.stream().map(BsonValue::asDocument).toList();
    }

    /** The same as the value of {@code cursor.pipeline}. */
    static String json(Collection<String> oversized) {
        return JsonArrays.of(stages(oversized));
    }

    /** Throws {@link ConfigException} unless a value of the setting begins with ours, whatever its spaces. */
    public static void require(String pipeline) {
        BsonArray stages = pipeline == null ? new BsonArray() : JsonArrays.parse(pipeline);
        if (stages.isEmpty() || !stages.get(0).equals(JsonArrays.parse(PIPELINE).get(0)))
            throw new ConfigException(
                    SETTING, pipeline, "updates and deletes would lose their bytes; let it begin with " + PIPELINE);
    }
}
