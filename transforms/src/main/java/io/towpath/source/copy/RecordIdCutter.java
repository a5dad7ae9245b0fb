package io.towpath.source.copy;

import com.mongodb.ReadPreference;
import com.mongodb.client.MongoCollection;
import io.towpath.debezium.SourceCluster;
import io.towpath.source.copy.CopySettings.Order;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/**
 * Decides by a sample whether a collection is scattered: its record ids do not rise with its {@code _id}s. If so, and if it does not fit the
 * source's cache, divides it by record ids.
 */
final class RecordIdCutter {
    /** A collection is scattered if the record ids of less than this share of pairs of documents are in the order of their {@code _id}s. */
    private static final double RISING = 0.95;
    /** A collection fits the cache up to this share of it, as others also need the cache. */
    private static final double CACHE_SHARE = 0.5;

    private static final int COMPARED = 1_000;
    private static final int MOST_SAMPLES = 5_000;
    private static final int KEYS_A_QUERY = 1_000;
    private static final BsonDocument ONLY_ID = new BsonDocument("_id", new BsonInt32(1));

    private RecordIdCutter() {}

    /**
     * By record ids or by {@code _id}s, as it is to be read.
     *
     * @param member a connection to the table's member
     */
    static RangePlan plan(SnapshotReads reads, String namespace, PhysicalTable table, SourceCluster member) {
        long now = System.currentTimeMillis();
        boolean isForced = reads.settings().order() == Order.NATURAL;
        if (!isForced && fits(table, member)) return reads.plan(namespace);
        int ranges = Math.max(
                1,
                RangeCutter.ranges(
                        table.documents(), table.bytes(), reads.settings().rangeBytes()));
        MongoCollection<BsonDocument> collection =
                member.collection(namespace).withReadPreference(ReadPreference.nearest());
        List<byte[]> keys = RangeCutter.sortedKeys(collection, table.documents(), ranges);
        Optional<List<Long>> recordIds = recordIds(
                collection,
                thinned(keys, MOST_SAMPLES).stream().filter(DriverKey::isExact).toList());
        if (recordIds.isEmpty() || !isForced && !isScattered(recordIds.get()))
            return new RangePlan(RangeCutter.bounds(keys, ranges), table.documents(), table.bytes(), now);
        RecordIds where =
                new RecordIds(table.member(), table.name(), reads.source().now());
        List<byte[]> bounds = bounds(recordIds.get(), ranges);
        return new RangePlan(bounds, table.documents(), table.bytes(), now, Optional.of(where));
    }

    /** Whether reading by {@code _id} reads few blocks more than once. */
    private static boolean fits(PhysicalTable table, SourceCluster member) {
        if (table.documents() <= RangeCutter.FEW) return true;
        OptionalLong cache = member.cacheBytes();
        return cache.isPresent() && table.bytes() <= CACHE_SHARE * cache.getAsLong();
    }

    /** In the order of the {@code _id}s, from the index alone; empty when they are no integers. */
    private static Optional<List<Long>> recordIds(MongoCollection<BsonDocument> collection, List<byte[]> keys) {
        List<Long> recordIds = new ArrayList<>();
        for (int from = 0; from < keys.size(); from += KEYS_A_QUERY) {
            BsonArray ids = new BsonArray();
            keys.subList(from, Math.min(keys.size(), from + KEYS_A_QUERY))
                    .forEach(key -> ids.add(new RawBsonDocument(key).get("_id")));
            List<BsonValue> values = collection
                    .find(new BsonDocument("_id", new BsonDocument("$in", ids)))
                    .projection(ONLY_ID)
                    .sort(ONLY_ID)
                    .hint(ONLY_ID)
                    .showRecordId(true)
                    .map(document -> document.get("$recordId"))
                    .into(new ArrayList<>());
            for (BsonValue value : values) {
                if (!(value instanceof BsonInt64 recordId)) return Optional.empty();
                recordIds.add(recordId.getValue());
            }
        }
        return Optional.of(recordIds);
    }

    /** Falling record ids are as good as rising ones: neighbours are in the same block. */
    private static boolean isScattered(List<Long> recordIds) {
        List<Long> sample = thinned(recordIds, COMPARED);
        long rising = 0;
        for (int later = 1; later < sample.size(); later++) {
            for (int index = 0; index < later; index++) if (sample.get(index) < sample.get(later)) rising++;
        }
        long pairs = (long) sample.size() * (sample.size() - 1) / 2;
        return Math.max(rising, pairs - rising) < RISING * pairs;
    }

    /** At most {@code count} of them, evenly spread. */
    private static <T> List<T> thinned(List<T> all, int count) {
        if (all.size() <= count) return all;
        List<T> some = new ArrayList<>(count);
        for (int index = 0; index < count; index++) some.add(all.get((int) ((long) all.size() * index / count)));
        return some;
    }

    private static List<byte[]> bounds(List<Long> recordIds, int ranges) {
        List<Long> sorted = recordIds.stream().sorted().distinct().toList();
        return thinned(sorted, ranges).stream().skip(1).map(RecordIds::position).toList();
    }
}
