package io.towpath.source.reread;

import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCursor;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.Rows;
import io.towpath.source.copy.SnapshotReads;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/**
 * Requested documents of one namespace as of one cluster time.
 *
 * @param gone keys that no document has
 */
record RereadAnswer(String namespace, ClusterTime time, List<byte[]> documents, List<byte[]> gone) {
    private static final long MOST_BYTES = 8 << 20;

    /** Answers a request from a key on, up to a number of bytes. Throws the driver's exceptions. */
    static RereadAnswer read(RereadRequest request, int from, ClusterTime time, SnapshotReads reads) {
        List<byte[]> keys = request.keys().subList(from, request.keys().size());
        List<byte[]> documents = new ArrayList<>();
        long bytes = 0;
        try (ClientSession session = reads.source().snapshot(time);
                MongoCursor<byte[]> cursor = reads.documents(request.namespace(), session, filter(keys))
                        .iterator()) {
            while (bytes < MOST_BYTES && cursor.hasNext()) {
                documents.add(cursor.next());
                bytes += documents.get(documents.size() - 1).length;
            }
        }
        byte[] last = bytes < MOST_BYTES ? null : CanonicalKey.of(documents.get(documents.size() - 1));
        return new RereadAnswer(request.namespace(), time, documents, missing(keys, documents, last));
    }

    private static BsonDocument filter(List<byte[]> keys) {
        BsonArray ids = new BsonArray();
        keys.forEach(key -> ids.add(new RawBsonDocument(key).get("_id")));
        return new BsonDocument("_id", new BsonDocument("$in", ids));
    }

    /** The keys, up to {@code last} unless it is null, that no document has; both lists are in the order of {@code _id}s. */
    private static List<byte[]> missing(List<byte[]> keys, List<byte[]> documents, byte[] last) {
        List<byte[]> missing = new ArrayList<>();
        int index = 0;
        for (byte[] key : keys) {
            if (last != null && BsonOrder.compare(key, last) > 0) break;
            if (index < documents.size() && BsonOrder.compare(key, documents.get(index)) == 0) index++;
            else missing.add(key);
        }
        return missing;
    }

    int size() {
        return documents.size() + gone.size();
    }

    List<SourceRecord> records(String topicPrefix, Map<String, Object> partition, Map<String, Object> offset) {
        return new Rows(topicPrefix, namespace, partition, offset).records(documents, gone, time);
    }
}
