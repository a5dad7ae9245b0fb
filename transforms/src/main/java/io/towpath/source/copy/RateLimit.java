package io.towpath.source.copy;

import java.util.concurrent.TimeUnit;

/** Delays the threads that share it so that together they stay below a rate. */
final class RateLimit {
    private final double documentsPerSecond;
    private final double bytesPerSecond;
    private long free = System.nanoTime();

    RateLimit(CopySettings settings) {
        documentsPerSecond = settings.documentsPerSecond();
        bytesPerSecond = settings.bytesPerSecond();
    }

    /** Waits for the time that earlier calls have used up. */
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
