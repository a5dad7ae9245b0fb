package io.towpath.source;

import java.util.Collection;
import java.util.List;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * How the parts of a change event that are no document reach the transform as bytes. The driver reads {@code documentKey} and
 * {@code updateDescription} with codecs of its own, out of the hook's reach; only {@code fullDocument} and
 * {@code fullDocumentBeforeChange} are read with ours. So the server is asked to put both into the latter.
 */
public final class ChangeCarrier {
    public static final String KEY = "documentKey";
    public static final String DESCRIPTION = "updateDescription";
    /** Is there in place of everything else when the event itself is too large for the server to send. */
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

    private ChangeCarrier() {}

    /** The stages, with nothing but the key of the events that have these resume tokens. */
    static List<BsonDocument> stages(Collection<String> oversized) {
        BsonArray stages = parsed(PIPELINE);
        if (!oversized.isEmpty()) {
            BsonArray tokens =
                    new BsonArray(oversized.stream().map(BsonString::new).toList());
            String json = new BsonDocument("t", tokens).toJson();
            stages.add(BsonDocument.parse(
                    ONLY_KEYS.formatted(json.substring(json.indexOf('['), json.lastIndexOf(']') + 1))));
        }
        return stages.stream().map(BsonValue::asDocument).toList();
    }

    /** The same as a setting of {@code cursor.pipeline}. */
    static String pipeline(Collection<String> oversized) {
        return "[%s]"
                .formatted(String.join(
                        ", ",
                        stages(oversized).stream().map(BsonDocument::toJson).toList()));
    }

    /** Whether a setting of {@code cursor.pipeline} begins with ours, whatever its spaces. */
    static boolean isCarriedBy(String pipeline) {
        if (pipeline == null) return false;
        BsonArray stages = parsed(pipeline);
        return !stages.isEmpty() && stages.get(0).equals(parsed(PIPELINE).get(0));
    }

    /**
     * As part of a document: BsonArrayCodec and BsonDocumentCodec need each other to be initialised, and two threads that begin with one
     * each wait for ever. The driver begins with documents.
     */
    private static BsonArray parsed(String pipeline) {
        return BsonDocument.parse("{pipeline: %s}".formatted(pipeline)).getArray("pipeline");
    }
}
