package io.towpath.sink;

import com.mongodb.bulk.BulkWriteResult;

/** Writes by class, the bytes of documents and updates in them, and those that found no document. */
record WriteCounts(long inserts, long updates, long deletes, long bytes, long withoutDocument) {
    WriteCounts() {
        this(0, 0, 0, 0, 0);
    }

    long writes() {
        return inserts + updates + deletes;
    }

    WriteCounts plus(Waves.Bulk bulk, BulkWriteResult result) {
        long[] kinds = new long[Write.Kind.values().length];
        bulk.writes().forEach(write -> kinds[write.kind().ordinal()]++);
        long expected = bulk.writes().stream().filter(write -> !write.mayMiss()).count();
        int actual = result.getInsertedCount()
                + result.getMatchedCount()
                + result.getUpserts().size()
                + result.getDeletedCount();
        long size = bulk.writes().stream().mapToLong(Write::bytes).sum();
        return plus(new WriteCounts(kinds[0], kinds[1], kinds[2], size, Math.max(0, expected - actual)));
    }

    WriteCounts plus(WriteCounts more) {
        return new WriteCounts(
                inserts + more.inserts,
                updates + more.updates,
                deletes + more.deletes,
                bytes + more.bytes,
                withoutDocument + more.withoutDocument);
    }
}
