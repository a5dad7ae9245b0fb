package io.towpath.sink;

import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * How much of a batch one transaction takes: less after an error, so that a retry costs little, and where the destination is so slow
 * that a transaction might exceed the server's limit (a minute), or its cache is too full for one of this size, which a server says as
 * a write conflict. More again after each quick success, and the maximum when the last error is a while ago.
 */
final class TransactionSize {
    private static final int SMALL_RECORDS = 64;
    private static final long SMALL_BYTES = 1024 * 1024;
    private static final int FACTOR = 4;
    private static final long QUICK_NS = Duration.ofSeconds(5).toNanos();
    private static final long SLOW_NS = Duration.ofSeconds(15).toNanos();
    private static final long WHILE_NS = Duration.ofSeconds(10).toNanos();

    private final long mostBytes;
    private final int mostRecords;
    private final LongSupplier clock;
    private long bytes;
    private int records;
    private long shrunk;

    TransactionSize(long mostBytes, int mostRecords) {
        this(mostBytes, mostRecords, System::nanoTime);
    }

    /** @param clock in nanoseconds */
    TransactionSize(long mostBytes, int mostRecords, LongSupplier clock) {
        this.mostBytes = mostBytes;
        this.mostRecords = mostRecords;
        this.clock = clock;
        this.bytes = mostBytes;
        this.records = mostRecords;
    }

    /** Where a transaction that begins at {@code from} ends: at least one record later. */
    int end(List<SinkRecord> batch, int from) {
        long sum = 0;
        int end = from;
        while (end < batch.size() && end - from < records) {
            sum += Records.bytes(batch.get(end));
            if (sum > bytes && end > from) break;
            end++;
        }
        return end;
    }

    /**
     * A transaction is applied.
     *
     * @param openNs how long it was open, without the wait for a majority afterwards: a server ends no transaction that is committed, and
     *     a smaller one would wait as long
     */
    void applied(List<SinkRecord> applied, long openNs) {
        if (openNs > SLOW_NS) shrink(applied);
        else if (openNs <= QUICK_NS) {
            boolean isLongAgo = clock.getAsLong() - shrunk > WHILE_NS;
            records = isLongAgo ? mostRecords : (int) Math.min(mostRecords, records * 2L);
            bytes = isLongAgo ? mostBytes : Math.min(mostBytes, bytes * 2);
        }
    }

    /** After an error that one of these records may have caused: down to a transaction for each. */
    void shrink(List<SinkRecord> failed) {
        shrink(failed, 1);
    }

    /** After an error that large transactions meet more often: a small one is not made smaller. */
    void shrinkUnlessSmall(List<SinkRecord> failed) {
        shrink(failed, SMALL_RECORDS);
    }

    private void shrink(List<SinkRecord> failed, int leastRecords) {
        long size = failed.stream().mapToLong(Records::bytes).sum();
        records = Math.min(records, Math.max(leastRecords, failed.size() / FACTOR));
        bytes = Math.min(bytes, Math.max(SMALL_BYTES, size / FACTOR));
        shrunk = clock.getAsLong();
    }
}
