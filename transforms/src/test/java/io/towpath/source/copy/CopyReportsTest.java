package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Page;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What waits between the copying threads and the task. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class CopyReportsTest {
    private static final int LARGE = 1 << 20;

    @Test
    void whatWaitsIsBoundedByItsBytesAndKeepsItsOrder() throws InterruptedException {
        CopyReports reports = new CopyReports(4 * LARGE);
        AtomicInteger put = new AtomicInteger();
        Thread reader = new Thread(() -> {
            try {
                for (int range = 0; range < 100; range++) {
                    reports.put(page(range, LARGE));
                    put.incrementAndGet();
                }
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        });
        reader.start();
        while (reader.getState() != Thread.State.WAITING) TimeUnit.MILLISECONDS.sleep(1);
        assertEquals(3, put.get(), "so many have room, with what a report takes besides");
        for (int range = 0; range < 100; range++) {
            Page page = ((CopyReports.Copied) reports.next(10_000)).page();
            assertEquals(range, page.range());
            assertTrue(put.get() <= range + 4, "more waits than there is room for");
        }
        reader.join();
    }

    @Test
    void whatIsLargerThanAllOfTheRoomPassesAlone() throws InterruptedException {
        CopyReports reports = new CopyReports(LARGE);
        reports.put(page(7, 16 * LARGE));
        assertEquals(7, ((CopyReports.Copied) reports.next(0)).page().range());
        assertNull(reports.next(0));
    }

    @Test
    void smallStepsAreBoundedTooAndCleared() throws InterruptedException {
        CopyReports reports = new CopyReports(10 << 10);
        Thread reader = new Thread(() -> {
            try {
                while (true) reports.put(page(0, 0));
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        });
        reader.start();
        while (reader.getState() != Thread.State.WAITING) TimeUnit.MILLISECONDS.sleep(1);
        reader.interrupt();
        reader.join();
        reports.clear();
        assertNull(reports.next(1));
    }

    private static CopyReports.Report page(int range, long bytes) {
        return new CopyReports.Copied(new Page("shop.orders", range, List.of(), bytes, new ClusterTime(1, 1), true));
    }
}
