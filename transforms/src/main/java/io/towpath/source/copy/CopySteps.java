package io.towpath.source.copy;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.TimeUnit;

/** Steps from the copying threads to the task, in order. Bounds the bytes that wait: a thread with more blocks. */
final class CopySteps {
    /** Memory of a step besides its documents. */
    private static final long OVERHEAD = 1 << 10;

    private final long mostBytes;
    private final Queue<CopyStep> waiting = new ArrayDeque<>();
    private long bytes;

    CopySteps(long mostBytes) {
        this.mostBytes = mostBytes;
    }

    /** Returns once there is room; a step that is larger than the whole room waits alone. */
    synchronized void put(CopyStep step) throws InterruptedException {
        while (!waiting.isEmpty() && bytes + size(step) > mostBytes) wait();
        waiting.add(step);
        bytes += size(step);
        notifyAll();
    }

    /** The next step, or null when there is none within the time. */
    synchronized CopyStep next(long waitMs) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        while (waiting.isEmpty()) {
            long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
            if (left <= 0) return null;
            wait(left);
        }
        CopyStep step = waiting.remove();
        bytes -= size(step);
        notifyAll();
        return step;
    }

    synchronized void clear() {
        waiting.clear();
        bytes = 0;
        notifyAll();
    }

    private static long size(CopyStep step) {
        return step.bytes() + OVERHEAD;
    }
}
