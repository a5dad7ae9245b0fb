package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class TransactionSizeTest {
    private static final List<SinkRecord> RECORDS =
            Collections.nCopies(1_000, new SinkRecord("t", 0, null, new byte[10], null, new byte[90], 0));
    private static final int MEBI = 1024 * 1024;
    private static final List<SinkRecord> LARGE =
            Collections.nCopies(10, new SinkRecord("t", 0, null, new byte[0], null, new byte[15 * MEBI], 0));
    private long now;

    @Test
    void isBoundByRecordsAndByBytesAndTakesALargerRecordAlone() {
        assertEquals(7, new TransactionSize(1_000_000, 7).end(RECORDS, 0));
        assertEquals(1_000, new TransactionSize(1_000_000, 7).end(RECORDS, 998));
        assertEquals(7, new TransactionSize(700, 1_000).end(RECORDS, 0));
        assertEquals(4, new TransactionSize(99, 1_000).end(RECORDS, 3));
    }

    @Test
    void isLessAfterAnErrorAndGrowsWithEverySuccess() {
        TransactionSize size = new TransactionSize(1_000_000, 800);
        size.shrinkUnlessSmall(next(size));
        assertEquals(200, size.end(RECORDS, 0));
        size.shrinkUnlessSmall(RECORDS.subList(0, 100));
        assertEquals(64, size.end(RECORDS, 0));
        size.shrink(RECORDS.subList(0, 2));
        assertEquals(1, size.end(RECORDS, 0));
        for (int expected : new int[] {2, 4, 8}) {
            size.applied(next(size), 0);
            assertEquals(expected, size.end(RECORDS, 0));
        }
        for (int i = 0; i < 20; i++) size.applied(next(size), 0);
        assertEquals(800, size.end(RECORDS, 0));
    }

    @Test
    void fewLargeRecordsAreMadeFewerAfterAWriteConflict() {
        TransactionSize size = new TransactionSize(64L * MEBI, 1_000_000);
        assertEquals(4, size.end(LARGE, 0));
        size.shrinkUnlessSmall(next(size, LARGE));
        assertEquals(1, size.end(LARGE, 0));
        size.shrinkUnlessSmall(next(size, LARGE));
        assertEquals(1, size.end(LARGE, 0));
        assertEquals(64, size.end(RECORDS, 0), "small ones are limited by their number only");
        for (int i = 0; i < 6; i++) size.applied(LARGE.subList(0, 1), 0);
        assertEquals(4, size.end(LARGE, 0));
    }

    @Test
    void aSlowDestinationsTransactionsStayWellWithinTheServersMinute() {
        TransactionSize size = new TransactionSize(1_000_000, 800, () -> now);
        assertEquals(800, applied(size, 16));
        assertEquals(200, applied(size, 6));
        assertEquals(200, applied(size, 3));
        assertEquals(400, applied(size, 0));
        assertEquals(800, size.end(RECORDS, 0));
    }

    @Test
    void waitingForAMajorityMakesNoTransactionSmallerAndLetsThemGrow() {
        TransactionSize size = new TransactionSize(1_000_000, 800, () -> now);
        size.shrink(next(size));
        for (int expected : new int[] {200, 800, 800}) {
            assertEquals(expected, size.end(RECORDS, 0));
            now += TimeUnit.SECONDS.toNanos(16);
            size.applied(next(size), TimeUnit.SECONDS.toNanos(1));
        }
    }

    @Test
    void whatIsLongOverCountsNoMore() {
        TransactionSize size = new TransactionSize(1_000_000, 800, () -> now);
        size.shrink(next(size));
        size.shrink(RECORDS.subList(0, 4));
        assertEquals(1, applied(size, 0));
        now += TimeUnit.SECONDS.toNanos(11);
        assertEquals(2, applied(size, 0));
        assertEquals(800, size.end(RECORDS, 0));
    }

    private int applied(TransactionSize size, int seconds) {
        List<SinkRecord> next = next(size);
        now += TimeUnit.SECONDS.toNanos(seconds);
        size.applied(next, TimeUnit.SECONDS.toNanos(seconds));
        return next.size();
    }

    private static List<SinkRecord> next(TransactionSize size) {
        return next(size, RECORDS);
    }

    private static List<SinkRecord> next(TransactionSize size, List<SinkRecord> batch) {
        return batch.subList(0, size.end(batch, 0));
    }
}
