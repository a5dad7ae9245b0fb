package io.towpath.source.stream;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.source.progress.Partitions;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;

class HeartbeatsTest {
    private long now = Long.MAX_VALUE - 5; // a clock may overflow
    private final Heartbeats heartbeats = new Heartbeats(() -> now);

    private static SourceRecord record(String topic, long position) {
        return new SourceRecord(Map.of(), Map.of("position", position), topic, null, null);
    }

    private static SourceRecord heartbeat(long position) {
        return record(Partitions.HEARTBEATS + "p", position);
    }

    @Test
    void aHeartbeatThatMovesNothingIsLeftOutUntilASignOfLifeIsDue() {
        assertFalse(heartbeats.isIdle(heartbeat(1)));
        heartbeats.emitted(heartbeat(1));
        assertTrue(heartbeats.isIdle(heartbeat(1)));
        now += Heartbeats.SIGN_OF_LIFE.toNanos() - 1;
        assertTrue(heartbeats.isIdle(heartbeat(1)));
        now += 1;
        assertFalse(heartbeats.isIdle(heartbeat(1)));
        heartbeats.emitted(heartbeat(1));
        assertTrue(heartbeats.isIdle(heartbeat(1)));
    }

    @Test
    void whatMovesTheStreamIsNeverLeftOut() {
        heartbeats.emitted(record("p.db.docs", 1));
        assertTrue(heartbeats.isIdle(heartbeat(1)));
        assertFalse(heartbeats.isIdle(heartbeat(2)));
        assertFalse(heartbeats.isIdle(record("p.db.docs", 1)));
    }
}
