package io.towpath.sink;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Waits longer and longer, with jitter, up to a limit; then leaves the retry to Connect. */
final class Retry {
    private static final Logger LOG = LoggerFactory.getLogger(Retry.class);
    private static final long SHORTEST_MS = 50;
    private static final long LONGEST_MS = 5_000;

    private final Duration limit;
    private final SinkTaskContext context;
    private long since = -1;
    private long pauseMs = SHORTEST_MS;

    Retry(Duration limit, SinkTaskContext context) {
        this.limit = limit;
        this.context = context;
    }

    void succeeded() {
        since = -1;
        pauseMs = SHORTEST_MS;
    }

    /** Throws {@link RetriableException} when the error has lasted too long, or the task should stop. */
    void pause(String attempt, RuntimeException reason) {
        long now = System.nanoTime();
        if (since < 0) {
            since = now;
            LOG.warn("cannot {}, retrying: {}", attempt, Verdict.message(reason));
        }
        if (now - since + pauseMs * 1_000_000 > limit.toNanos() || !slept()) {
            context.timeout(LONGEST_MS); // else Connect waits for as long as between commits
            throw new RetriableException(
                    "cannot %s for %d s, and will retry: %s"
                            .formatted(attempt, limit.toSeconds(), Verdict.message(reason)),
                    reason);
        }
        pauseMs = Math.min(LONGEST_MS, pauseMs * 2);
    }

    private boolean slept() {
        try {
            Thread.sleep(pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs));
            return true;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
