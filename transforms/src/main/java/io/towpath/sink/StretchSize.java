package io.towpath.sink;

import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * How many records one transaction takes: less after an error, so that trying again costs little, and where the destination is so slow
 * that a transaction might outlive what a server allows (a minute). With every success that was quick more again, and all of it when
 * the last trouble is a while ago.
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

    /** Where the stretch that begins here and now ends: at least one record on. */
    int end(List<SinkRecord> records, int from) {
        long bytes = 0;
        int end = from;
        while (end < records.size() && end - from < most) {
            bytes += SinkMetrics.size(records.get(end));
            if (bytes > mostBytes && end > from) break;
            end++;
        }
        stretch = end - from;
        return end;
    }

    /**
     * The stretch that was begun last is applied.
     *
     * @param openNs how long its transaction was open. Waiting for a majority afterwards does not count: a server ends no transaction
     *     that is committed, and a smaller one would wait as long
     */
    void grow(long openNs) {
        if (openNs > SLOW_NS) shrink(stretch, 1);
        else if (openNs <= QUICK_NS)
            most = clock.getAsLong() - shrunk > WHILE_NS ? mostRecords : (int) Math.min(mostRecords, most * 2L);
    }

    /** After a stretch of so many records; not below the least. */
    void shrink(int stretch, int least) {
        most = Math.min(most, Math.max(least, stretch / FACTOR));
        shrunk = clock.getAsLong();
    }
}
