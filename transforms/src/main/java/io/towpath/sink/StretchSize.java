package io.towpath.sink;

import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;

/** How many records one transaction takes: less after an error, so that trying again costs little; with every success more again. */
final class StretchSize {
    private static final int FACTOR = 4;

    private final long mostBytes;
    private final int mostRecords;
    private int most;

    StretchSize(long mostBytes, int mostRecords) {
        this.mostBytes = mostBytes;
        this.mostRecords = mostRecords;
        this.most = mostRecords;
    }

    /** Where the stretch that begins here ends: at least one record on. */
    int end(List<SinkRecord> records, int from) {
        long bytes = 0;
        int end = from;
        while (end < records.size() && end - from < most) {
            bytes += SinkMetrics.size(records.get(end));
            if (bytes > mostBytes && end > from) break;
            end++;
        }
        return end;
    }

    void grow() {
        most = (int) Math.min(mostRecords, most * 2L);
    }

    /** After a stretch of so many records; not below the least. */
    void shrink(int stretch, int least) {
        most = Math.min(most, Math.max(least, stretch / FACTOR));
    }
}
