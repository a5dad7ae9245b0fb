package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

/** How long a position may be behind a log that the cleaner compacts. */
class DeleteGuardTest {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final long LAG = 10_000;
    private static final long RETENTION = 30_000;
    private static final long INTERVAL = (LAG + RETENTION) / 8;
    private static final long START = 1_700_000_000_000L;

    private long nowMs = START;
    /** The broker's times of the first records that are not applied, as Kafka reports them. */
    private Map<TopicPartition, OptionalLong> unread = new HashMap<>();

    private int questions;
    private final DeleteGuard guard = guard(LAG, RETENTION);

    private DeleteGuard guard(long lagMs, long deleteRetentionMs) {
        LogSettings log = new LogSettings(Optional.empty(), Map.of(), lagMs, deleteRetentionMs, true, new Properties());
        return new DeleteGuard(
                log,
                positions -> {
                    questions++;
                    assertEquals(Map.of(PARTITION, 5L), positions);
                    return unread;
                },
                () -> nowMs);
    }

    private void opened(long beganMs, long atMs) {
        guard.opened(
                PARTITION, new BsonDocument("began", new BsonDateTime(beganMs)).append("at", new BsonDateTime(atMs)));
    }

    private Map<TopicPartition, Long> check() {
        return guard.check(Map.of(PARTITION, 5L));
    }

    @Test
    void deletesAreKeptForLagAndRetentionAfterWhatIsApplied() {
        opened(0, START);
        nowMs = START + LAG + RETENTION;
        check();
        nowMs++;
        assertThrows(ConnectException.class, this::check);
    }

    @Test
    void deletesAreKeptForTheRetentionAfterAFirstPassBegan() {
        opened(START, 0);
        nowMs = START + RETENTION;
        check();
        nowMs++;
        assertThrows(ConnectException.class, this::check);
    }

    @Test
    void whatIsAppliedOrForgottenHoldsUpNothing() {
        opened(0, START);
        nowMs = START + LAG + RETENTION + 1;
        guard.applied(PARTITION, START + 1);
        check();
        nowMs++;
        guard.forget(PARTITION);
        check();
        assertFalse(guard.watches(PARTITION));
    }

    @Test
    void anIdlePartitionIsAppliedUpToNowOrUpToTheFirstRecordThatIsNot() {
        opened(0, START);
        nowMs += INTERVAL - 1;
        assertEquals(Map.of(), check());
        assertEquals(0, questions, "it is applied up to a moment ago");
        nowMs++;
        assertEquals(Map.of(), check(), "Kafka does not say");
        unread.put(PARTITION, OptionalLong.of(START));
        nowMs += INTERVAL / 2;
        assertEquals(Map.of(), check(), "that is known");
        unread.put(PARTITION, OptionalLong.of(START + 1));
        nowMs += INTERVAL / 2 - 1;
        assertEquals(Map.of(), check());
        assertEquals(2, questions, "it was asked just now");
        nowMs++;
        assertEquals(Map.of(PARTITION, START + 1), check());
        unread.put(PARTITION, OptionalLong.empty());
        nowMs += LAG + RETENTION - 2 * INTERVAL;
        assertEquals(Map.of(PARTITION, nowMs), check(), "there is no record");
        nowMs += LAG + RETENTION;
        check();
    }

    @Test
    void onlyACompactedLogIsWatched() {
        assertTrue(guard.isOn());
        assertEquals(INTERVAL, guard.intervalMs());
        assertEquals(
                BsonDocument.parse(
                        """
                        {began: {$cond: [{$gt: ['$offset', {$numberLong: '0'}]}, {$ifNull: ['$began', {$date: %1$s}]}, {$date: %1$s}]},
                         at: {$cond: [{$gt: ['$offset', {$numberLong: '0'}]}, {$ifNull: ['$at', {$date: %2$s}]}, {$date: %2$s}]}}"""
                                .formatted(milliseconds(START), milliseconds(START - LAG))),
                guard.opening(START));
        DeleteGuard off = guard(-1, -1);
        assertFalse(off.isOn());
        assertEquals(BsonDocument.parse("{began: '$$REMOVE', at: '$$REMOVE'}"), off.opening(START));
        off.opened(PARTITION, BsonDocument.parse("{began: {$date: 0}, at: {$date: 0}}"));
        assertFalse(off.watches(PARTITION));
        guard.opened(PARTITION, BsonDocument.parse("{offset: 5}"));
        assertFalse(guard.watches(PARTITION));
    }

    private static String milliseconds(long ms) {
        return "{$numberLong: '%d'}".formatted(ms);
    }
}
