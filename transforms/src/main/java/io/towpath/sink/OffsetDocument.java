package io.towpath.sink;

import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.conversions.Bson;

/**
 * The document of a partition at the destination, without the times of {@link DeleteGuard}.
 *
 * @param epoch of its owner
 * @param offset of the next record to apply
 * @param clear at least {@code offset}: the log holds no record from there up to this one
 * @param topicId of the topic that the offset belongs to; null until a sink of this version has taken the partition over
 * @param lastAtMs the broker's time of the record at {@link #lastRead}; null if it is not known
 * @param barrier the schema change at {@code offset}, at which the partition waits; null when it does not
 */
record OffsetDocument(long epoch, long offset, long clear, String topicId, Long lastAtMs, String barrier) {
    static final String OFFSET = "offset";
    static final String EPOCH = "epoch";
    static final String SESSION = "session";
    static final String CLEAR = "clear";
    static final String TOPIC_ID = "topicId";
    static final String LAST_AT = "lastAt";
    static final String BARRIER = "barrier";

    /** Of a partition that waits at no schema change. */
    OffsetDocument(long epoch, long offset, long clear, String topicId, Long lastAtMs) {
        this(epoch, offset, clear, topicId, lastAtMs, null);
    }

    static OffsetDocument of(BsonDocument stored) {
        long offset = stored.getNumber(OFFSET).longValue();
        return new OffsetDocument(
                stored.getNumber(EPOCH).longValue(),
                offset,
                Math.max(offset, stored.getNumber(CLEAR, new BsonInt64(offset)).longValue()),
                stored.containsKey(TOPIC_ID) ? stored.getString(TOPIC_ID).getValue() : null,
                stored.isDateTime(LAST_AT) ? stored.getDateTime(LAST_AT).getValue() : null,
                stored.containsKey(BARRIER) ? stored.getString(BARRIER).getValue() : null);
    }

    /** Matches the document. */
    static BsonDocument filter(String pipeline, TopicPartition partition) {
        return new BsonDocument(
                "_id",
                new BsonDocument("pipeline", new BsonString(pipeline))
                        .append("topic", new BsonString(partition.topic()))
                        .append("partition", new BsonInt32(partition.partition())));
    }

    /** The update pipeline that gives it to a new owner, whether or not it exists. */
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

    OffsetDocument movedTo(long next, Long atMs) {
        return new OffsetDocument(epoch, next, next, topicId, atMs);
    }

    OffsetDocument clearTo(long upTo) {
        return new OffsetDocument(epoch, offset, upTo, topicId, lastAtMs, barrier);
    }

    OffsetDocument inTopic(String id) {
        return new OffsetDocument(epoch, offset, clear, id, lastAtMs, barrier);
    }

    OffsetDocument standingAt(long offset, String change, Long atMs) {
        return new OffsetDocument(epoch, offset, Math.max(offset, clear), topicId, atMs, change);
    }

    /** The offset of the next record to read. */
    long next() {
        return barrier == null ? offset : offset + 1;
    }

    /** The offset of the last record that was applied, or of the schema change at which the partition waits; -1 before the first. */
    long lastRead() {
        return next() - 1;
    }
}
