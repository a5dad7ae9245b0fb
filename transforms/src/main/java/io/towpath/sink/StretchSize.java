package io.towpath.sink;

import java.time.Duration;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * How many records one transaction takes: less after an error, so that trying again costs little, and where the destination is so slow
 * that a transaction might outlive what a server allows (a minute); with every success that was quick more again.
 */
final class StretchSize {
    private static final int FACTOR = 4;
    private static final long QUICK_NS = Duration.ofSeconds(5).toNanos();
    private static final long SLOW_NS = Duration.ofSeconds(15).toNanos();

    private final long mostBytes;
    private final int mostRecords;
    private final LongSupplier clock;
    private int most;
    private int stretch;
    private long began;

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
        began = clock.getAsLong();
        return end;
    }

    /** The stretch that was begun last is applied. */
    void grow() {
        long took = clock.getAsLong() - began;
        if (took <= QUICK_NS) most = (int) Math.min(mostRecords, most * 2L);
        else if (took > SLOW_NS) shrink(stretch, 1);
    }

    /** After a stretch of so many records; not below the least. */
    void shrink(int stretch, int least) {
        most = Math.min(most, Math.max(least, stretch / FACTOR));
    }
}
