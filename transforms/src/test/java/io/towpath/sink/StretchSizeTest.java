package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class StretchSizeTest {
    private static final List<SinkRecord> RECORDS =
            Collections.nCopies(1_000, new SinkRecord("t", 0, null, new byte[10], null, new byte[90], 0));
    private long now;

    @Test
    void isBoundByRecordsAndByBytesAndTakesALargerRecordAlone() {
        assertEquals(7, new StretchSize(1_000_000, 7).end(RECORDS, 0));
        assertEquals(1_000, new StretchSize(1_000_000, 7).end(RECORDS, 998));
        assertEquals(7, new StretchSize(700, 1_000).end(RECORDS, 0));
        assertEquals(4, new StretchSize(99, 1_000).end(RECORDS, 3));
    }

    @Test
    void isLessAfterAnErrorAndGrowsWithEverySuccess() {
        StretchSize size = new StretchSize(1_000_000, 800);
        size.shrink(size.end(RECORDS, 0), 64);
        assertEquals(200, size.end(RECORDS, 0));
        size.shrink(100, 64);
        assertEquals(64, size.end(RECORDS, 0));
        size.shrink(2, 1);
        assertEquals(1, size.end(RECORDS, 0));
        for (int expected : new int[] {2, 4, 8}) {
            size.grow(0);
            assertEquals(expected, size.end(RECORDS, 0));
        }
        for (int i = 0; i < 20; i++) size.grow(0);
        assertEquals(800, size.end(RECORDS, 0));
    }

    @Test
    void aSlowDestinationsTransactionsStayWellWithinTheServersMinute() {
        StretchSize size = new StretchSize(1_000_000, 800, () -> now);
        assertEquals(800, applied(size, 16));
        assertEquals(200, applied(size, 6));
        assertEquals(200, applied(size, 3));
        assertEquals(400, applied(size, 0));
        assertEquals(800, size.end(RECORDS, 0));
    }

    @Test
    void waitingForAMajorityMakesNoTransactionSmallerAndLetsThemGrow() {
        StretchSize size = new StretchSize(1_000_000, 800, () -> now);
        size.shrink(size.end(RECORDS, 0), 1);
        for (int expected : new int[] {200, 800, 800}) {
            assertEquals(expected, size.end(RECORDS, 0));
            now += TimeUnit.SECONDS.toNanos(16);
            size.grow(TimeUnit.SECONDS.toNanos(1));
        }
    }

    @Test
    void whatIsLongOverCountsNoMore() {
        StretchSize size = new StretchSize(1_000_000, 800, () -> now);
        size.shrink(size.end(RECORDS, 0), 1);
        size.shrink(4, 1);
        assertEquals(1, applied(size, 0));
        now += TimeUnit.SECONDS.toNanos(11);
        assertEquals(2, applied(size, 0));
        assertEquals(800, size.end(RECORDS, 0));
    }

    private int applied(StretchSize size, int seconds) {
        int end = size.end(RECORDS, 0);
        now += TimeUnit.SECONDS.toNanos(seconds);
        size.grow(TimeUnit.SECONDS.toNanos(seconds));
        return end;
    }
}
