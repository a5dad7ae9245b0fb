package io.towpath.sink;

import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * How many records one transaction takes: fewer after an error, so that a retry costs little, and where the destination is so slow that
 * a transaction might exceed the server's limit (a minute). More again after each quick success, and the maximum when the last trouble is
 * a while ago.
 */
final class StretchSize {
    private static final int FACTOR = 4;
    private static final long QUICK_NS = Duration.ofSeconds(5).toNanos();
    private static final long SLOW_NS = Duration.ofSeconds(15).toNanos();
    private static final long WHILE_NS = Duration.ofSeconds(10).toNanos();

    private final long mostBytes;
    private final int mostRecords;
    private final LongSupplier clock;
    private int most;
    private int stretch;
    private long shrunk;

    StretchSize(long mostBytes, int mostRecords) {
        this(mostBytes, mostRecords, System::nanoTime);
    }

    /** @param clock in nanoseconds */
    StretchSize(long mostBytes, int mostRecords, LongSupplier clock) {
        this.mostBytes = mostBytes;
        this.mostRecords = mostRecords;
        this.clock = clock;
        this.most = mostRecords;
    }

    /** Where a stretch that begins at {@code from} ends: at least one record later. */
    int end(List<SinkRecord> records, int from) {
        long bytes = 0;
        int end = from;
        while (end < records.size() && end - from < most) {
            bytes += Records.bytes(records.get(end));
            if (bytes > mostBytes && end > from) break;
            end++;
        }
        stretch = end - from;
        return end;
    }

    /**
     * The last stretch is applied.
     *
     * @param openNs how long its transaction was open, without the wait for a majority afterwards: a server ends no transaction that is
     *     committed, and a smaller one would wait as long
     */
    void grow(long openNs) {
        if (openNs > SLOW_NS) shrink(stretch, 1);
        else if (openNs <= QUICK_NS)
            most = clock.getAsLong() - shrunk > WHILE_NS ? mostRecords : (int) Math.min(mostRecords, most * 2L);
    }

    /** After trouble with a stretch of this many records; not below {@code least}. */
    void shrink(int stretch, int least) {
        most = Math.min(most, Math.max(least, stretch / FACTOR));
        shrunk = clock.getAsLong();
    }
}
