package io.towpath.sink;

import com.mongodb.MongoSocketReadTimeoutException;
import org.apache.kafka.connect.errors.RetriableException;

/**
 * For how long a server may say nothing before it is given up: short, because one that died without a word is not told from one that
 * is slow, and there may be another primary by then. Twice in vain without a success in between is slow: twice as long for the rest of
 * the task's life.
 */
final class Silence {
    /** Well below the consumer's max.poll.interval.ms, for a commit is asked for twice. */
    private static final int LONGEST_MS = 120_000;

    private static final int IN_VAIN = 2;

    private int ms;
    private int timeouts;

    Silence(int firstMs) {
        ms = firstMs;
    }

    int ms() {
        return ms;
    }

    void answered() {
        timeouts = 0;
    }

    /** Throws {@link TooShort} when a server that is only slow would never get to its end. */
    void after(RuntimeException error) {
        if (!(error instanceof MongoSocketReadTimeoutException) || ms >= LONGEST_MS || ++timeouts < IN_VAIN) return;
        timeouts = 0;
        ms = Math.min(LONGEST_MS, 2 * ms);
        throw new TooShort(
                "the destination said nothing for too long, %d times in a row; it is waited for longer now, %d s"
                        .formatted(IN_VAIN, ms / 1000),
                error);
    }

    /** The destination is to be connected to anew, with more patience. */
    static final class TooShort extends RetriableException {
        private static final long serialVersionUID = 1;

        private TooShort(String message, RuntimeException cause) {
            super(message, cause);
        }
    }
}
