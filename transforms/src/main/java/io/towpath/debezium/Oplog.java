package io.towpath.debezium;

import com.mongodb.MongoException;
import com.mongodb.client.MongoCollection;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.BsonInt32;

/**
 * How far back the source's oplog reaches; {@code towpath/checks/log.py} computes the same.
 *
 * @param first the time in its first entry, in seconds; {@code last} that in its last
 * @param fill its size as a share of its maximum; at 1 it drops its oldest entries
 * @param kept for how many seconds it keeps entries at least
 * @param size its maximum in bytes
 * @param written how many bytes the server has written to it since its start; 0 if unknown
 */
public record Oplog(long first, long last, double fill, double kept, long size, long written) {
    /** An oplog this full has begun to drop its oldest entries, so that its span is its window. */
    private static final double FULL = 0.9;
    /** The connector warns when capture lags by this share of the window. */
    private static final double NEAR = 0.5;

    private static final int TRIES = 10;

    /** Throws {@link MongoException}, also where the user may not read the oplog. */
    public static Oplog read(SourceCluster source) {
        MongoCollection<BsonDocument> oplog = source.oplog();
        long first = first(oplog);
        long last = seconds(oplog, -1);
        BsonDocument stats = oplog.aggregate(List.of(BsonDocument.parse("{$collStats: {storageStats: {}}}")))
                .first()
                .getDocument("storageStats");
        long size = stats.getNumber("maxSize").longValue();
        double fill = stats.getNumber("size").doubleValue() / size;
        long written = stats.getDocument("wiredTiger", new BsonDocument())
                .getDocument("cursor", new BsonDocument())
                .getNumber("insert key and value bytes", new BsonInt32(0))
                .longValue();
        return new Oplog(first, last, fill, 3600 * source.oplogRetentionHours(), size, written);
    }

    /** How many seconds it spans once it is full, at the rate of writes so far. */
    public double window() {
        double grown = fill > FULL ? 1 : 1 / fill;
        return Math.max((last - first) * grown, kept);
    }

    /** How many seconds longer it holds what was written at a cluster time; below zero when that may be gone. */
    public double left(ClusterTime time) {
        return window() - (last - time.seconds());
    }

    public boolean isNear(ClusterTime time) {
        return left(time) < (1 - NEAR) * window();
    }

    /** Reads the first entry again when the server drops it before that. */
    private static long first(MongoCollection<BsonDocument> oplog) {
        for (int left = TRIES; ; left--) {
            try {
                return seconds(oplog, 1);
            } catch (MongoException error) {
                if (!ServerError.CappedPositionLost.is(error) || left == 1) throw error;
            }
        }
    }

    private static long seconds(MongoCollection<BsonDocument> oplog, int direction) {
        return ClusterTime.of(oplog.find()
                        .sort(new BsonDocument("$natural", new BsonInt32(direction)))
                        .projection(new BsonDocument("ts", new BsonInt32(1)))
                        .first()
                        .getTimestamp("ts"))
                .seconds();
    }
}
