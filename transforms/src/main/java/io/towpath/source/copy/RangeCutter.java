package io.towpath.source.copy;

import com.mongodb.MongoException;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoCollection;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.source.progress.RangePlan;
import java.util.ArrayList;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonNumber;
import org.bson.RawBsonDocument;

/** Divides a collection into ranges of about the same number of bytes, whatever the types and distribution of its {@code _id}s. */
final class RangeCutter {
    /** Keeps a plan with {@code _id}s of 1 KB, in Base64, below Kafka's default record size of 1 MB. */
    private static final int MAX_RANGES = 1_024;

    private static final int MAX_BOUND_BYTES = 700_000;
    /** Of up to this many documents every {@code _id} is read, from the index alone; of more, a sample. */
    static final long FEW = 20_000;

    private static final int SAMPLES_A_RANGE = 20;
    private static final BsonDocument ONLY_ID = new BsonDocument("_id", new BsonInt32(1));

    private RangeCutter() {}

    static RangePlan plan(MongoCollection<BsonDocument> collection, long rangeBytes) {
        long now = System.currentTimeMillis();
        BsonDocument sizes = sizes(collection);
        long documents = number(sizes, "count");
        long bytes = number(sizes, "size");
        int ranges = ranges(documents, bytes, rangeBytes);
        List<byte[]> bounds = ranges < 2 ? List.of() : bounds(sortedKeys(collection, documents, ranges), ranges);
        return new RangePlan(bounds, documents, bytes, now);
    }

    /** Into how many ranges a collection is divided. */
    static int ranges(long documents, long bytes, long rangeBytes) {
        return (int) Math.min(Math.min(MAX_RANGES, documents), (bytes + rangeBytes - 1) / rangeBytes);
    }

    /** Empty when the collection does not exist, or is a view by now. */
    private static BsonDocument sizes(MongoCollection<BsonDocument> collection) {
        BsonDocument stage = BsonDocument.parse("{$collStats: {storageStats: {}}}");
        try {
            BsonDocument stats = collection.aggregate(List.of(stage)).first();
            return stats == null ? new BsonDocument() : stats.getDocument("storageStats");
        } catch (MongoException error) {
            if (!ServerError.NamespaceNotFound.is(error) && !ReadFault.isOfAView(error)) throw error;
            return new BsonDocument();
        }
    }

    private static long number(BsonDocument sizes, String name) {
        return sizes.get(name) instanceof BsonNumber number ? number.longValue() : 0;
    }

    /** Keys of the collection, or of a sample of it, in the order of the {@code _id}s. */
    static List<byte[]> sortedKeys(MongoCollection<BsonDocument> collection, long documents, long ranges) {
        List<byte[]> keys = new ArrayList<>();
        MongoCollection<RawBsonDocument> raw = collection.withDocumentClass(RawBsonDocument.class);
        if (documents <= FEW) {
            FindIterable<RawBsonDocument> ids =
                    raw.find().projection(ONLY_ID).sort(ONLY_ID).hint(ONLY_ID);
            return ids.map(id -> CanonicalKey.of(BsonBytes.of(id))).into(keys);
        }
        // the server samples less than 5 % with a random cursor; for more it would read the whole collection
        int size = (int) Math.min(documents / 25, ranges * SAMPLES_A_RANGE);
        List<BsonDocument> pipeline = List.of(
                new BsonDocument("$sample", new BsonDocument("size", new BsonInt32(size))),
                new BsonDocument("$project", ONLY_ID));
        raw.aggregate(pipeline).map(id -> CanonicalKey.of(BsonBytes.of(id))).into(keys);
        keys.sort(BsonOrder::compare);
        return keys;
    }

    /** @param keys in the order of the {@code _id}s */
    static List<byte[]> bounds(List<byte[]> keys, int ranges) {
        List<byte[]> bounds = new ArrayList<>();
        int bytes = 0;
        for (int range = 1; range < ranges; range++) {
            int index = (int) ((long) keys.size() * range / ranges);
            if (index == 0 || index >= keys.size()) continue;
            byte[] key = keys.get(index);
            boolean isNew = bounds.isEmpty() || BsonOrder.compare(bounds.get(bounds.size() - 1), key) < 0;
            bytes += key.length;
            if (isNew && bytes <= MAX_BOUND_BYTES && DriverKey.isExact(key)) bounds.add(key);
        }
        return bounds;
    }
}
