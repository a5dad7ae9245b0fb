package io.towpath.source.reread;

import com.mongodb.client.ClientSession;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.DocumentCursor;
import io.towpath.source.copy.Rows;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.progress.Progress;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/**
 * Requested documents of one namespace as of one cluster time.
 *
 * @param keys that are answered: the next ones of the request
 * @param documents all that the server finds by these keys, by their own keys. Under a default collation it finds "a" by "A": so a document
 *     may have a key that is none of {@code keys}, and is no answer to the one that found it
 */
record RereadAnswer(String namespace, ClusterTime time, List<byte[]> keys, Map<ByteBuffer, byte[]> documents) {
    /** Of the documents, and of the keys, which are a part of one command. */
    private static final long MOST_BYTES = 8 << 20;

    /**
     * Answers a request from a key on: as many keys as the bytes of an answer allow, but at least one. The order in which the server returns
     * documents is that of the collection's default collation, and proves nothing. Throws the driver's exceptions.
     */
    static RereadAnswer read(RereadRequest request, int from, ClusterTime time, SnapshotReads reads) {
        List<byte[]> keys =
                firstKeys(request.keys().subList(from, request.keys().size()));
        while (true) {
            Map<ByteBuffer, byte[]> documents = new LinkedHashMap<>();
            if (readAll(request.namespace(), keys, time, reads, documents))
                return new RereadAnswer(request.namespace(), time, keys, documents);
            keys = keys.subList(0, Math.min(documents.size(), keys.size() - 1));
            // mostly these are the documents of the first keys
            if (keys.stream().allMatch(key -> documents.containsKey(ByteBuffer.wrap(key))))
                return new RereadAnswer(request.namespace(), time, keys, documents);
        }
    }

    /** As many as one command may have, but at least one. */
    static List<byte[]> firstKeys(List<byte[]> keys) {
        long bytes = keys.get(0).length;
        int count = 1;
        while (count < keys.size() && bytes + keys.get(count).length <= MOST_BYTES) bytes += keys.get(count++).length;
        return keys.subList(0, count);
    }

    /** Returns false when there are more documents than an answer may have. */
    private static boolean readAll(
            String namespace,
            List<byte[]> keys,
            ClusterTime time,
            SnapshotReads reads,
            Map<ByteBuffer, byte[]> documents) {
        long bytes = 0;
        try (ClientSession session = reads.source().snapshot(time);
                DocumentCursor cursor = reads.documents(namespace, session, filter(keys))) {
            while (cursor.hasNext()) {
                if (bytes >= MOST_BYTES && keys.size() > 1) return false;
                byte[] document = cursor.next();
                documents.put(ByteBuffer.wrap(CanonicalKey.of(document)), document);
                bytes += document.length;
            }
        }
        return true;
    }

    /** What matches the documents with these keys. */
    static BsonDocument filter(List<byte[]> keys) {
        BsonArray ids = new BsonArray();
        keys.forEach(key -> ids.add(new RawBsonDocument(key).get("_id")));
        return new BsonDocument("_id", new BsonDocument("$in", ids));
    }

    /** The answered keys that no document has. */
    List<byte[]> gone() {
        return keys.stream()
                .filter(key -> !documents.containsKey(ByteBuffer.wrap(key)))
                .toList();
    }

    /**
     * Deletes come first: at a destination with the same default collation, the delete of "A" removes "a", whose row follows.
     *
     * @param deleted those of {@link #gone} that the log may hold
     */
    List<SourceRecord> records(
            Progress progress, List<byte[]> deleted, Map<String, ?> partition, Map<String, ?> offset) {
        return new Rows(progress, namespace, partition, offset).records(documents.values(), deleted, time);
    }
}
