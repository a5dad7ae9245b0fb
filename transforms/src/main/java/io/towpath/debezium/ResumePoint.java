package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.record.ClusterTime;
import io.towpath.transform.EventTime;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where the stream goes on.
 *
 * @param time every event before it is out
 * @param token the resume token of Debezium's offset; empty before the first event
 */
record ResumePoint(ClusterTime time, Optional<BsonDocument> token) {
    private static final Logger LOGGER = LoggerFactory.getLogger(ResumePoint.class);
    private static final int HISTORY_LOST = 286;
    private static final int CANNOT_RESUME = 280;
    private static final int OPLOG_PASSED = 136; // CappedPositionLost, by a cursor that was overtaken
    private static final List<BsonDocument> TOKENS_ONLY =
            List.of(new BsonDocument("$project", new BsonDocument("_id", new BsonInt32(1))));

    /**
     * @param offset Debezium's, or null
     * @param start where the stream begins when there is none
     */
    static ResumePoint of(Map<String, Object> offset, ClusterTime start) {
        if (offset == null) return new ResumePoint(start, Optional.empty());
        Optional<BsonDocument> token = Optional.ofNullable((String) offset.get("resume_token"))
                .map(text -> new RawBsonDocument(Base64.getDecoder().decode(text)));
        return new ResumePoint(EventTime.of(offset).orElse(start), token);
    }

    /** The given change stream, from here on. */
    <T> ChangeStreamIterable<T> from(ChangeStreamIterable<T> stream) {
        stream.maxAwaitTime(100, TimeUnit.MILLISECONDS);
        return token.isPresent() ? stream.resumeAfter(token.get()) : stream.startAtOperationTime(time.timestamp());
    }

    /** Whether the source no longer holds what came after. Throws {@link MongoException} when it cannot be told. */
    boolean isLost(SourceCluster source) {
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor =
                from(source.changes(TOKENS_ONLY)).batchSize(1).cursor()) {
            cursor.tryNext();
            return false;
        } catch (MongoException error) {
            if (!isAboutLoss(error.getCode())) throw error;
            LOGGER.error("the change stream cannot go on from {}", time, error);
            return true;
        }
    }

    /** Throws {@link ConnectException} where it is lost, and where the source refuses to tell. */
    void refuseLost(SourceCluster source) {
        try {
            if (isLost(source)) throw lost(source);
        } catch (MongoException error) {
            if (ReadFault.passes(error)) return;
            throw new ConnectException(
                    "the source does not say whether its oplog reaches back to %s: %s"
                            .formatted(time, ReadFault.words(error)),
                    error);
        }
    }

    static boolean isAboutLoss(int code) {
        return code == HISTORY_LOST || code == CANNOT_RESUME || code == OPLOG_PASSED;
    }

    /** What is told when it is lost. Without a cause, as Connect's users see the deepest one. */
    private ConnectException lost(SourceCluster source) {
        return new ConnectException(
                "the source's oplog no longer holds the changes since %s (%s), up to where they are captured%s. What changed after that cannot be read any more, and a restart brings nothing back: `towpath resnapshot PIPELINE` reads all documents again and removes what is gone, without emptying the destination"
                        .formatted(time, Instant.ofEpochSecond(time.seconds()), begins(source)));
    }

    private static String begins(SourceCluster source) {
        try {
            return "; it begins at " + Instant.ofEpochSecond(Oplog.read(source).first());
        } catch (MongoException unknown) {
            return "";
        }
    }
}
