package io.towpath.source.copy;

import io.towpath.net.RetryCause;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** What the copying threads report to the task, in order. Bounds the bytes that wait: a thread with more blocks. */
final class CopyReports {
    sealed interface Report {
        /** Of the documents in it. */
        default long bytes() {
            return 0;
        }
    }

    /** A collection has been divided into ranges; its rows follow. */
    record Planned(String namespace, RangePlan plan) implements Report {}

    /** Rows of a range. */
    record Copied(Page page) implements Report {
        @Override
        public long bytes() {
            return page.bytes();
        }
    }

    /** A read failed with a transient error and is retried. */
    record Retried(String namespace, int range, RetryCause cause, String reason) implements Report {}

    /** The record ids of a collection's plan are of no use any more: its copy has to start again. */
    record Outdated(String namespace, RetryCause cause, String reason) implements Report {}

    /** A read failed permanently. */
    record Failed(String namespace, Throwable cause) implements Report {}

    /** Memory of a report without its documents. */
    private static final long OVERHEAD = 1 << 10;

    private final int mostBytes;
    private final Semaphore room;
    private final BlockingQueue<Report> waiting = new LinkedBlockingQueue<>();

    CopyReports(int mostBytes) {
        this.mostBytes = mostBytes;
        this.room = new Semaphore(mostBytes, true);
    }

    /** Returns once there is room; a report that is larger than the whole room waits alone. */
    void put(Report report) throws InterruptedException {
        room.acquire(size(report));
        waiting.add(report);
    }

    /** The next report, or null when there is none within the time. */
    Report next(long waitMs) throws InterruptedException {
        Report report = waiting.poll(waitMs, TimeUnit.MILLISECONDS);
        if (report != null) room.release(size(report));
        return report;
    }

    void clear() {
        for (Report report = waiting.poll(); report != null; report = waiting.poll()) room.release(size(report));
    }

    private int size(Report report) {
        return (int) Math.min(mostBytes, report.bytes() + OVERHEAD);
    }
}
