package io.towpath.debezium;

import com.mongodb.MongoException;
import com.mongodb.ReadConcern;
import com.mongodb.client.MongoCollection;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

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
    private static final Logger LOGGER = LoggerFactory.getLogger(Oplog.class);
    /** The first entry of a replica set, until its oplog drops it. */
    private static final BsonDocument INITIATION = BsonDocument.parse("{op: 'n', o: {msg: 'initiating set'}}");

    /** Throws {@link MongoException}, also where the user may not read the oplog. */
    public static Oplog read(SourceCluster source) {
        MongoCollection<BsonDocument> oplog = source.oplog();
        long first = despiteDrops(() -> seconds(oplog, 1));
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

    /**
     * Whether the source has another history than that of an entry that a majority once had: it was restored, or has lost its latest changes.
     * False where the user may not read the oplog. Throws {@link MongoException} while the member that responds may not have that entry yet.
     */
    static boolean isOfOtherHistory(SourceCluster source, ClusterTime entry) {
        // one command, as only the answer of one member proves anything; and a former primary may have later entries
        // that no majority gets
        List<BsonDocument> stages = List.of(
                new BsonDocument("$match", new BsonDocument("ts", new BsonDocument("$gte", entry.timestamp()))),
                BsonDocument.parse("{$limit: 1}"),
                BsonDocument.parse("{$unionWith: {coll: 'oplog.rs', pipeline: [{$limit: 1}]}}"),
                BsonDocument.parse("{$project: {_id: 0, ts: 1, op: 1, 'o.msg': 1}}"));
        MongoCollection<BsonDocument> oplog = source.oplog().withReadConcern(ReadConcern.MAJORITY);
        List<BsonDocument> found;
        try {
            found = despiteDrops(() -> oplog.aggregate(stages).into(new ArrayList<>()));
        } catch (MongoException error) {
            if (ReadFault.isTransient(error)) throw error;
            LOGGER.warn(
                    "cannot read at the source whether it was restored since {}, up to which it is captured: {}",
                    entry,
                    ReadFault.message(error));
            return false;
        }
        return isOfOtherHistory(found, entry);
    }

    /** @param found the first entry that is not before {@code entry}, if there is one, and the first of all */
    static boolean isOfOtherHistory(List<BsonDocument> found, ClusterTime entry) {
        if (found.size() < 2)
            throw new MongoException(
                    ServerError.ReadConcernMajorityNotAvailableYet.code(),
                    "the member that responds has no entry yet of %s or later".formatted(entry));
        if (time(found.get(0)).equals(entry)) return false;
        BsonDocument first = found.get(1);
        // otherwise the oplog has dropped the entry
        return entry.isAfter(time(first)) || first.entrySet().containsAll(INITIATION.entrySet());
    }

    /** Reads again when the server drops the entries that are read. */
    private static <T> T despiteDrops(Supplier<T> read) {
        for (int left = TRIES; ; left--) {
            try {
                return read.get();
            } catch (MongoException error) {
                if (!ServerError.CappedPositionLost.is(error) || left == 1) throw error;
            }
        }
    }

    private static long seconds(MongoCollection<BsonDocument> oplog, int direction) {
        return time(oplog.find()
                        .sort(new BsonDocument("$natural", new BsonInt32(direction)))
                        .projection(new BsonDocument("ts", new BsonInt32(1)))
                        .first())
                .seconds();
    }

    private static ClusterTime time(BsonDocument entry) {
        return ClusterTime.of(entry.getTimestamp("ts"));
    }
}
