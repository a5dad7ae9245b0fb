package io.towpath.source.copy;

import com.mongodb.client.ClientSession;
import com.mongodb.client.FindIterable;
import io.towpath.debezium.SourceCluster;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.rules.Rules;
import io.towpath.source.rules.Selection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;

/**
 * Reads documents of the source as bytes, in the order of their {@code _id}s, in snapshot sessions; of a collection with a filter, only
 * those that it matches.
 *
 * @param outages namespace, or in natural order member → for how many nanoseconds of this task's rounds no page of it could be read
 */
public record SnapshotReads(SourceCluster source, CopySettings settings, Rules rules, Map<String, Long> outages) {
    private static final BsonDocument BY_ID = new BsonDocument("_id", new BsonInt32(1));
    /** The most documents that the server sends at once; it sends 16 MB at most. */
    private static final int BATCH_DOCUMENTS = 4_000;
    /** About how many bytes the server sends at once to all threads of a copy together. */
    private static final long BATCHES_BYTES = 16 << 20;

    public SnapshotReads(SourceCluster source, CopySettings settings, Rules rules) {
        this(source, settings, rules, new ConcurrentHashMap<>());
    }

    /** How to divide a collection into ranges. The order of a default collation is unknown here: one range has all of the collection. */
    RangePlan plan(String namespace) {
        long rangeBytes = source.hasSimpleCollation(namespace) ? settings.rangeBytes() : Long.MAX_VALUE;
        return RangeCutter.plan(source.collection(namespace), rangeBytes);
    }

    /** The documents of a namespace that match a filter. */
    public DocumentCursor documents(String namespace, ClientSession session, BsonDocument filter) {
        return DocumentCursor.open(find(namespace, session, filter));
    }

    /** Of these documents only their {@code _id}s, as {@code {_id: …}}. */
    public DocumentCursor ids(String namespace, ClientSession session, BsonDocument filter) {
        return DocumentCursor.open(find(namespace, session, filter).projection(BY_ID));
    }

    private FindIterable<RawBsonDocument> find(String namespace, ClientSession session, BsonDocument filter) {
        return source.collection(namespace)
                .withDocumentClass(RawBsonDocument.class)
                .withReadPreference(settings.readPreference())
                .find(session, selected(namespace, filter))
                .sort(BY_ID)
                .hint(BY_ID)
                .batchSize(BATCH_DOCUMENTS);
    }

    private BsonDocument selected(String namespace, BsonDocument filter) {
        return rules.only(namespace)
                .map(only -> filter.isEmpty() ? only.filter() : Selection.all(List.of(filter, only.filter())))
                .orElse(filter);
    }

    /**
     * The documents of a range, whatever the types of their {@code _id}s.
     *
     * @param from key of the first {@code _id}; empty for the beginning
     */
    DocumentCursor range(ClientSession session, RangeRead.Range range, byte[] from) {
        FindIterable<RawBsonDocument> documents = find(range.namespace(), session, new BsonDocument());
        byte[] to = range.plan().to(range.index());
        if (from.length > 0) documents.min(new RawBsonDocument(from));
        if (to.length > 0) documents.max(new RawBsonDocument(to));
        documents.batchSize(
                (int) Math.min(BATCH_DOCUMENTS, range.plan().documentsIn(BATCHES_BYTES / settings.threads())));
        return DocumentCursor.open(documents);
    }
}
