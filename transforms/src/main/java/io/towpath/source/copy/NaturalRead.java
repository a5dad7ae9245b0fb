package io.towpath.source.copy;

import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.client.ClientSession;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ServerError;
import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import org.bson.BsonArray;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * Reads a range of record ids in natural order. A page is a batch, because the server tells the record id of the last document of each. Of a
 * batch that reaches over the range's end, a second read tells the others: the server adds record ids by a projection, which does not keep
 * a document's bytes.
 */
final class NaturalRead implements PageRead {
    /** Of documents in a page, so that the search for the end of a range does not take many round trips. */
    private static final int FEWEST = 50;

    private static final BsonDocument NATURAL = new BsonDocument("$natural", new BsonInt32(1));

    private final SourceCluster member;
    private final MongoNamespace namespace;
    private final RangeRead.Range range;
    private final ClusterTime time;
    private final Size size;
    private final ClientSession session;
    /** Record id at which the range ends. */
    private final long end;
    /** Record id up to which nothing is to be read: of the range's beginning, or where an earlier read ended. */
    private final long known;
    /** The record id after which this read began. */
    private long begin;
    /** The last record id that was read, and the last one before the latest batch. */
    private long position;

    private long before;

    /** Read since the beginning. */
    private long documents;
    /** The server's id of the cursor; 0 at the end of the collection. */
    private long cursor;
    /** Read, but not in a page yet; null for nothing. */
    private List<byte[]> ahead;

    private boolean ended;

    /** @param member the member that the record ids are of */
    NaturalRead(SourceCluster member, RangeRead.Range range, ClusterTime time, Size size) {
        this.member = member;
        this.namespace = new MongoNamespace(range.namespace());
        this.range = range;
        this.time = time;
        this.size = size;
        this.end = recordId(range.plan().to(range.index()), Long.MAX_VALUE);
        this.known = recordId(range.after(), recordId(range.plan().from(range.index()), 0));
        this.session = member.session();
        try {
            begin();
            while (position <= known && !isAtEnd()) advance();
        } catch (RuntimeException error) {
            close();
            throw error;
        }
    }

    private static long recordId(byte[] position, long otherwise) {
        return position.length == 0 ? otherwise : RecordIds.recordId(position);
    }

    /** After the record at which an earlier read ended or, where it is gone, after the last bound before it that is left. */
    private void begin() {
        begin = known;
        int index = range.index();
        while (begin > 0) {
            try {
                find();
                return;
            } catch (MongoException error) {
                if (!ServerError.KeyNotFound.is(error)) throw error;
            }
            while (index > 0 && RecordIds.recordId(range.plan().from(index)) >= begin) index--;
            begin = recordId(range.plan().from(index), 0);
        }
        find();
    }

    private void find() {
        position = begin;
        take(find(begin, batchSize()), "firstBatch");
    }

    /** A read after a record. */
    private BsonDocument find(long after, int count) {
        BsonDocument command = new BsonDocument("find", new BsonString(namespace.getCollectionName()))
                .append("hint", NATURAL)
                .append("$_requestResumeToken", BsonBoolean.TRUE)
                .append("batchSize", new BsonInt32(count))
                .append(
                        "readConcern",
                        new BsonDocument("level", new BsonString("snapshot"))
                                .append("atClusterTime", time.timestamp()));
        if (after > 0) command.append("$_resumeAfter", new BsonDocument("$recordId", new BsonInt64(after)));
        return command;
    }

    private void advance() {
        take(
                new BsonDocument("getMore", new BsonInt64(cursor))
                        .append("collection", new BsonString(namespace.getCollectionName()))
                        .append("batchSize", new BsonInt32(batchSize())),
                "nextBatch");
    }

    private void take(BsonDocument command, String batch) {
        BsonDocument reply = run(command);
        cursor = reply.getInt64("id").getValue();
        ahead = new ArrayList<>();
        for (BsonValue document : reply.getArray(batch)) ahead.add(BsonBytes.of(document.asDocument()));
        documents += ahead.size();
        BsonValue last =
                reply.getDocument("postBatchResumeToken", new BsonDocument()).get("$recordId");
        before = position;
        if (last instanceof BsonInt64 recordId) position = recordId.getValue();
    }

    /** What the latest batch holds of this read. */
    private List<byte[]> inRange() {
        if (ahead.isEmpty() || position <= known) return List.of();
        if (before >= known && position <= end) return ahead;
        BsonDocument command = find(before, ahead.size())
                .append("limit", new BsonInt32(ahead.size()))
                .append("singleBatch", BsonBoolean.TRUE)
                .append("showRecordId", BsonBoolean.TRUE)
                .append("projection", new BsonDocument("_id", new BsonInt32(1)));
        List<Long> recordIds = new ArrayList<>();
        for (BsonValue document : run(command).getArray("firstBatch"))
            recordIds.add(document.asDocument().getInt64("$recordId").getValue());
        int from = (int) recordIds.stream().filter(id -> id <= known).count();
        // a reply of 16 MB may lack the last ones: they are kept, as a row twice is harmless and a row less is not
        int to = ahead.size() - (int) recordIds.stream().filter(id -> id > end).count();
        return ahead.subList(from, to);
    }

    private BsonDocument run(BsonDocument command) {
        try {
            return member.run(namespace.getDatabaseName(), command, session).getDocument("cursor");
        } catch (MongoSocketException | MongoTimeoutException unreachable) {
            cursor = 0; // to close it would wait for the member; a server ends a cursor that nothing uses
            throw unreachable;
        }
    }

    /** A page, or fewer where the next border is nearer. Record ids have gaps where documents were deleted. */
    private int batchSize() {
        long left = (position < known ? known : end) - position;
        if (documents > 0)
            left = Math.min(left, Math.max(FEWEST, (long) ((double) documents * left / (position - begin))));
        long page = Math.min(size.documents(), range.plan().documentsIn(size.bytes()));
        return (int) Math.min(left, page);
    }

    private boolean isAtEnd() {
        return cursor == 0 || position >= end;
    }

    @Override
    public boolean hasNext() {
        return !ended;
    }

    @Override
    public Page next() {
        if (ended) throw new NoSuchElementException();
        if (ahead == null) advance();
        while (ahead.isEmpty() && !isAtEnd()) advance();
        List<byte[]> rows = inRange();
        ahead = null;
        ended = isAtEnd();
        byte[] upTo = ended ? RangePlan.OPEN_END : RecordIds.position(position);
        long bytes = rows.stream().mapToLong(row -> row.length).sum();
        return new Page(range.namespace(), range.index(), rows, bytes, time, upTo);
    }

    @Override
    public void close() {
        if (cursor != 0) {
            BsonDocument command = new BsonDocument("killCursors", new BsonString(namespace.getCollectionName()))
                    .append("cursors", new BsonArray(List.of(new BsonInt64(cursor))));
            try {
                member.run(namespace.getDatabaseName(), command, session);
            } catch (MongoException gone) {
                // the server ends a cursor that nothing uses
            }
        }
        session.close();
    }
}
