package io.towpath.source.copy;

import io.towpath.net.RetryCause;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** What the copying threads report to the task, in order. Bounds the bytes that wait: a thread with more blocks. */
final class CopySteps {
    sealed interface Step {
        /** Of the documents in it. */
        default long bytes() {
            return 0;
        }
    }

    /** A collection has been divided into ranges; its rows follow. */
    record Planned(String namespace, RangePlan plan) implements Step {}

    /** Rows of a range. */
    record Copied(Page page) implements Step {
        @Override
        public long bytes() {
            return page.bytes();
        }
    }

    /** A read failed with a transient error and is retried. */
    record Retried(String namespace, int range, RetryCause cause, String reason) implements Step {}

    /** The record ids of a collection's plan are of no use any more: its copy has to begin anew. */
    record Outdated(String namespace, RetryCause cause, String reason) implements Step {}

    /** A read failed permanently. */
    record Failed(String namespace, Throwable cause) implements Step {}

    /** Memory of a step besides its documents. */
    private static final long OVERHEAD = 1 << 10;

    private final int mostBytes;
    private final Semaphore room;
    private final BlockingQueue<Step> waiting = new LinkedBlockingQueue<>();

    CopySteps(int mostBytes) {
        this.mostBytes = mostBytes;
        this.room = new Semaphore(mostBytes, true);
    }

    /** Returns once there is room; a step that is larger than the whole room waits alone. */
    void put(Step step) throws InterruptedException {
        room.acquire(size(step));
        waiting.add(step);
    }

    /** The next step, or null when there is none within the time. */
    Step next(long waitMs) throws InterruptedException {
        Step step = waiting.poll(waitMs, TimeUnit.MILLISECONDS);
        if (step != null) room.release(size(step));
        return step;
    }

    void clear() {
        for (Step step = waiting.poll(); step != null; step = waiting.poll()) room.release(size(step));
    }

    private int size(Step step) {
        return (int) Math.min(mostBytes, step.bytes() + OVERHEAD);
    }
}
