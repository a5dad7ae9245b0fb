package io.towpath.source;

import org.bson.BsonDocument;

/**
 * How the parts of a change event that are no document reach the transform as bytes. The driver reads {@code documentKey} and
 * {@code updateDescription} with codecs of its own, out of the hook's reach; only {@code fullDocument} and
 * {@code fullDocumentBeforeChange} are read with ours. So the server is asked to put both into the latter.
 */
public final class ChangeCarrier {
    public static final String KEY = "documentKey";
    public static final String DESCRIPTION = "updateDescription";

    /** What {@code cursor.pipeline} must be. */
    public static final String PIPELINE =
            """
            [{"$set": {"fullDocumentBeforeChange": {"$cond": [{"$in": ["$operationType", ["update", "delete"]]}, \
            {"documentKey": "$documentKey", "updateDescription": "$updateDescription"}, "$$REMOVE"]}, \
            "updateDescription": "$$REMOVE"}}]""";

    private ChangeCarrier() {}

    /** Whether a setting of {@code cursor.pipeline} says the same, whatever its spaces. */
    static boolean isCarriedBy(String pipeline) {
        return pipeline != null && parsed(pipeline).equals(parsed(PIPELINE));
    }

    /**
     * As part of a document: BsonArrayCodec and BsonDocumentCodec need each other to be initialised, and two threads that begin with one
     * each wait for ever. The driver begins with documents.
     */
    private static BsonDocument parsed(String pipeline) {
        return BsonDocument.parse("{pipeline: %s}".formatted(pipeline));
    }
}
