package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.client.MongoCollection;
import io.towpath.record.ClusterTime;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.BsonInt32;

/**
 * How far back the source's oplog reaches, as {@code towpath/mongo/oplog.py} reckons it too.
 *
 * @param first the time in its first entry, in seconds; {@code last} that in its last
 * @param fill how full it is: 1 when it drops its oldest entries
 * @param kept seconds for which it keeps entries at least
 */
record Oplog(long first, long last, double fill, double kept) {
    /** An oplog this full has begun to drop its oldest entries, so that its span is its window. */
    private static final double FULL = 0.9;
    /** Capture that is behind by this share of the window is warned of. */
    private static final double NEAR = 0.5;

    /** Throws {@link MongoException}, also where the user may not read it. */
    static Oplog read(SourceCluster source) {
        MongoCollection<BsonDocument> oplog = source.oplog();
        long first = seconds(oplog, 1);
        long last = seconds(oplog, -1);
        BsonDocument stats = oplog.aggregate(
                        List.of(new BsonDocument("$collStats", new BsonDocument("storageStats", new BsonDocument()))))
                .first()
                .getDocument("storageStats");
        double fill = stats.getNumber("size").doubleValue()
                / stats.getNumber("maxSize").doubleValue();
        return new Oplog(first, last, fill, 3600 * source.oplogHoursKept());
    }

    /** How many seconds it spans once it is full, at the pace of writes so far. */
    double window() {
        double grown = fill > FULL ? 1 : 1 / fill;
        return Math.max((last - first) * grown, kept);
    }

    /** For how many seconds it still holds what was written at a moment; below zero when it may be gone. */
    double left(ClusterTime moment) {
        return window() - (last - moment.seconds());
    }

    boolean isNear(ClusterTime moment) {
        return left(moment) < (1 - NEAR) * window();
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
