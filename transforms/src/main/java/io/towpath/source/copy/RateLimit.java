package io.towpath.source;

import java.util.concurrent.TimeUnit;

/** Makes threads that share it wait so long that together they stay under a rate. */
final class RateLimit {
    private final double documentsPerSecond;
    private final double bytesPerSecond;
    private long free = System.nanoTime();

    /** Zero means no limit. */
    RateLimit(long documentsPerSecond, long bytesPerSecond) {
        this.documentsPerSecond = documentsPerSecond;
        this.bytesPerSecond = bytesPerSecond;
    }

    /** Waits until what was taken before is paid for. */
    void take(long documents, long bytes) throws InterruptedException {
        double seconds = Math.max(
                documentsPerSecond > 0 ? documents / documentsPerSecond : 0,
                bytesPerSecond > 0 ? bytes / bytesPerSecond : 0);
        if (seconds == 0) return;
        long wait;
        synchronized (this) {
            long now = System.nanoTime();
            wait = Math.max(0, free - now);
            free = Math.max(free, now) + (long) (seconds * 1e9);
        }
        TimeUnit.NANOSECONDS.sleep(wait);
    }
}
