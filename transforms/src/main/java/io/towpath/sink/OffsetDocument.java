package io.towpath.sink;

import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.conversions.Bson;

/**
 * What the document of a partition at the destination says; the times in it are those of {@link DeleteGuard}.
 *
 * @param epoch of its owner
 * @param offset of the next record to apply
 */
record OffsetDocument(long epoch, long offset) {
    static final String OFFSET = "offset";
    static final String EPOCH = "epoch";
    static final String SESSION = "session";

    static OffsetDocument of(BsonDocument stored) {
        return new OffsetDocument(
                stored.getNumber(EPOCH).longValue(), stored.getNumber(OFFSET).longValue());
    }

    /** Finds it. */
    static BsonDocument filter(String pipeline, TopicPartition partition) {
        return new BsonDocument(
                "_id",
                new BsonDocument("pipeline", new BsonString(pipeline))
                        .append("topic", new BsonString(partition.topic()))
                        .append("partition", new BsonInt32(partition.partition())));
    }

    /** Makes it a new owner's, as a pipeline of updates, whether or not it is there. */
    static List<Bson> takenBy(BsonDocument session, BsonDocument times) {
        return List.of(
                BsonDocument.parse(
                        """
                        {$set: {
                            epoch: {$add: [{$ifNull: ['$epoch', {$numberLong: '0'}]}, {$numberLong: '1'}]},
                            offset: {$ifNull: ['$offset', {$numberLong: '0'}]}}}"""),
                set(new BsonDocument(SESSION, new BsonDocument("$literal", session))),
                set(times));
    }

    static BsonDocument set(BsonDocument fields) {
        return new BsonDocument("$set", fields);
    }

    OffsetDocument movedTo(long next) {
        return new OffsetDocument(epoch, next);
    }
}
