package io.towpath.sink;

import com.mongodb.MongoSocketReadTimeoutException;
import org.apache.kafka.connect.errors.RetriableException;

/**
 * How long a server may be unresponsive before the sink gives it up: short, because a dead server cannot be distinguished from a slow one,
 * and there may be another primary by then. After two timeouts without a success in between it is slow, and the limit doubles for the rest
 * of the task's life.
 */
final class Silence {
    /** Well below the consumer's max.poll.interval.ms, as a commit is attempted twice. */
    private static final int LONGEST_MS = 120_000;

    private static final int TIMEOUTS = 2;

    private int ms;
    private int timeouts;

    Silence(int firstMs) {
        ms = firstMs;
    }

    int ms() {
        return ms;
    }

    void ended() {
        timeouts = 0;
    }

    /** Throws {@link TooShort} when a server that is only slow would never finish. */
    void after(RuntimeException error) {
        if (!(error instanceof MongoSocketReadTimeoutException) || ms >= LONGEST_MS || ++timeouts < TIMEOUTS) return;
        timeouts = 0;
        ms = Math.min(LONGEST_MS, 2 * ms);
        throw new TooShort(
                "the destination was silent for too long, %d times in a row; the sink now waits up to %d s"
                        .formatted(TIMEOUTS, ms / 1000),
                error);
    }

    /** The sink has to reconnect to the destination with a longer limit. */
    static final class TooShort extends RetriableException {
        private static final long serialVersionUID = 1;

        private TooShort(String message, RuntimeException cause) {
            super(message, cause);
        }
    }
}
