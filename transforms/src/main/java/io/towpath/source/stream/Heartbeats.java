package io.towpath.source.stream;

import io.towpath.source.progress.Partitions;
import java.time.Duration;
import java.util.Map;
import java.util.function.LongSupplier;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Which of Debezium's heartbeats are left out, as each is a separate transaction: those that move nothing, but for a sign of life now and
 * then.
 */
final class Heartbeats {
    /** How often a stream that does not move tells that it lives; Kafka forgets a transactional id that is silent for days. */
    static final Duration SIGN_OF_LIFE = Duration.ofSeconds(10);

    private final LongSupplier nanoTime;
    /** The offset of the last of Debezium's records that are emitted; null before the first. */
    private Map<String, ?> stored;

    private long storedNs;

    /** @param nanoTime a clock like {@link System#nanoTime} */
    Heartbeats(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
    }

    boolean isIdle(SourceRecord record) {
        return record.topic().startsWith(Partitions.HEARTBEATS)
                && record.sourceOffset().equals(stored)
                && nanoTime.getAsLong() - storedNs < SIGN_OF_LIFE.toNanos();
    }

    /** A record is emitted. */
    void emitted(SourceRecord record) {
        stored = record.sourceOffset();
        storedNs = nanoTime.getAsLong();
    }
}
