package io.towpath.source.copy;

import com.mongodb.client.ClientSession;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import org.bson.BsonDocument;
import org.bson.BsonMaxKey;
import org.bson.BsonTimestamp;

/** Reads a range of {@code _id}s. */
final class RangeRead implements PageRead {
    private static final BsonDocument MAX_KEY = new BsonDocument("_id", new BsonMaxKey());

    /**
     * A range of a collection, or the rest of it.
     *
     * @param after where an earlier read ended ({@link Page#upTo}); empty for none
     */
    record Range(String namespace, RangePlan plan, int index, byte[] after) {}

    private final SnapshotReads reads;
    private final Range range;
    private final Size page;
    private ClientSession session;
    private DocumentCursor cursor;
    private boolean atEnd;
    private final ClusterTime time;
    private byte[] ahead;
    private boolean ended;

    /**
     * @param session determines the cluster time; closed with this
     * @param earliest the read is not as of an earlier time
     */
    RangeRead(SnapshotReads reads, ClientSession session, Range range, Size page, ClusterTime earliest) {
        this.reads = reads;
        this.range = range;
        this.page = page;
        this.session = session;
        byte[] after = range.after;
        try {
            byte[] from = after.length > 0 ? after : range.plan.from(range.index);
            this.cursor = open(from);
            if (isBefore(earliest)) {
                close();
                this.session = reads.source().snapshot(reads.source().now(earliest));
                this.cursor = open(from);
            }
            // a find with min() and without max() ends before MaxKey, which may be an _id
            this.atEnd = from.length == 0 || range.plan.to(range.index).length > 0;
            this.time = ClusterTime.of(this.session.getSnapshotTimestamp());
            this.ahead = read();
            boolean isKnown =
                    ahead != null && after.length > 0 && BsonOrder.compare(CanonicalKey.of(ahead), after) == 0;
            if (isKnown) ahead = read();
        } catch (RuntimeException error) {
            this.session.close();
            throw error;
        }
    }

    /** Whether the member lags. One without the collection reports no cluster time, and may lag. */
    private boolean isBefore(ClusterTime earliest) {
        BsonTimestamp time = session.getSnapshotTimestamp();
        return time == null || earliest.isAfter(ClusterTime.of(time));
    }

    private DocumentCursor open(byte[] from) {
        return reads.range(session, range, from);
    }

    private byte[] read() {
        if (!cursor.hasNext() && !atEnd) {
            cursor = reads.documents(range.namespace, session, MAX_KEY);
            atEnd = true;
        }
        return cursor.hasNext() ? cursor.next() : null;
    }

    @Override
    public boolean hasNext() {
        return !ended;
    }

    @Override
    public Page next() {
        if (ended) throw new NoSuchElementException();
        List<byte[]> documents = new ArrayList<>();
        long bytes = 0;
        while (ahead != null && !isFull(documents, bytes)) {
            documents.add(ahead);
            bytes += ahead.length;
            ahead = read();
        }
        ended = ahead == null;
        return new Page(range.namespace, range.index, documents, bytes, time, ended);
    }

    /** A page ends where a later read can continue. */
    private boolean isFull(List<byte[]> documents, long bytes) {
        if (bytes < page.bytes() && documents.size() < page.documents()) return false;
        return DriverKey.isExact(CanonicalKey.of(documents.get(documents.size() - 1)));
    }

    @Override
    public void close() {
        cursor.close();
        session.close();
    }
}
