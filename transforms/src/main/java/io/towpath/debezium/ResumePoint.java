package io.towpath.debezium;

import com.mongodb.MongoException;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
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
 * Where the stream resumes.
 *
 * @param time all earlier events are emitted
 * @param token the resume token of Debezium's offset; empty before the first event
 * @param isEntry whether the time is that of an entry of the oplog that a majority had: of an event, or of the last entry without one
 */
public record ResumePoint(ClusterTime time, Optional<BsonDocument> token, boolean isEntry) {
    private static final Logger LOGGER = LoggerFactory.getLogger(ResumePoint.class);
    private static final List<BsonDocument> TOKENS_ONLY =
            List.of(new BsonDocument("$project", new BsonDocument("_id", new BsonInt32(1))));

    /** A time of which no entry has to exist. */
    public ResumePoint(ClusterTime time, Optional<BsonDocument> token) {
        this(time, token, false);
    }

    /**
     * @param offset Debezium's, or null
     * @param start where the stream begins when there is none
     */
    public static ResumePoint of(Map<String, Object> offset, ClusterTime start) {
        if (offset == null) return new ResumePoint(start, Optional.empty());
        Optional<BsonDocument> token = Optional.ofNullable((String) offset.get("resume_token"))
                .map(text -> new RawBsonDocument(Base64.getDecoder().decode(text)));
        ClusterTime time = EventTime.of(offset).orElse(start);
        // the stream has begun at the start or right after it: before it has passed an entry, that is its time
        return new ResumePoint(time, token, time.isAfter(start.next()));
    }

    /** The given change stream, from here. */
    <T> ChangeStreamIterable<T> from(ChangeStreamIterable<T> stream) {
        stream.maxAwaitTime(100, TimeUnit.MILLISECONDS);
        return token.isPresent() ? stream.resumeAfter(token.get()) : stream.startAtOperationTime(time.timestamp());
    }

    /** Whether the changes after this point are lost. Throws {@link MongoException} when that cannot be determined. */
    public boolean isLost(SourceCluster source) {
        return loss(source).isPresent();
    }

    private Optional<ConnectException> loss(SourceCluster source) {
        if (isEntry && Oplog.isOfOtherHistory(source, time)) return Optional.of(otherHistory());
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor =
                from(source.changes(TOKENS_ONLY)).batchSize(1).cursor()) {
            cursor.tryNext();
            return Optional.empty();
        } catch (MongoException error) {
            if (ServerError.of(error.getCode()).filter(ResumePoint::isLoss).isEmpty()) throw error;
            LOGGER.error("the change stream cannot resume from {}", time, error);
            return Optional.of(lost(source));
        }
    }

    /**
     * Throws {@link ConnectException} when the changes after this point are lost, and when the source does not report whether they are.
     * Returns false when it may report that later.
     */
    public boolean requireHistory(SourceCluster source) {
        try {
            Optional<ConnectException> loss = loss(source);
            if (loss.isPresent()) throw loss.get();
            return true;
        } catch (MongoException error) {
            if (ReadFault.isTransient(error)) return false;
            throw new ConnectException(
                    "the source does not report whether its oplog reaches back to %s: %s"
                            .formatted(time, ReadFault.message(error)),
                    error);
        }
    }

    /** CappedPositionLost comes from a cursor that the oplog has overtaken. */
    public static boolean isLoss(ServerError error) {
        return error == ServerError.ChangeStreamHistoryLost
                || error == ServerError.ChangeStreamFatalError
                || error == ServerError.CappedPositionLost;
    }

    /** Has no cause, because Connect shows users the deepest one. */
    private ConnectException lost(SourceCluster source) {
        return new ConnectException(
                "TWP-HISTORY-LOST: the source's oplog no longer holds the changes since %s (%s), the end of what is captured%s. They cannot be read any more, and a restart does not bring them back: `towpath resnapshot PIPELINE` re-reads all documents and deletes those that are gone, without emptying the destination. If the source was restored, first save what it lacks: `towpath verify PIPELINE --alone` shows it"
                        .formatted(time, Instant.ofEpochSecond(time.seconds()), oplogStart(source)));
    }

    private ConnectException otherHistory() {
        return new ConnectException(
                "TWP-OTHER-HISTORY: the source's oplog has no entry of %s (%s), the end of what is captured, and has not dropped it: the source was restored, or has lost its latest changes. The destination may have the last copy of what the source lacks: `towpath verify PIPELINE --alone` shows it, and changes nothing. Save it before you run `towpath resnapshot PIPELINE`, which re-reads all documents and deletes those that the source does not have"
                        .formatted(time, Instant.ofEpochSecond(time.seconds())));
    }

    private static String oplogStart(SourceCluster source) {
        try {
            return "; it begins at " + Instant.ofEpochSecond(Oplog.read(source).first());
        } catch (MongoException unknown) {
            return "";
        }
    }
}
