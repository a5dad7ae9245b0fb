package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

class LogBoundsTest {
    private static final TopicPartition PARTITION = new TopicPartition("shop.shop.orders", 3);

    @Test
    void aPositionWithinTheLogIsWell() {
        assertEquals("", code(at(10, 10), log(0, 20)));
        assertEquals("", code(at(10, 10), log(10, 10)), "all that is behind it is deleted, and there is nothing");
        assertEquals("", code(at(0, 0), log(0, 0)));
        assertEquals("", code(new OffsetDocument(1, 10, 10, null, null), log(5, 20)), "moved by a command");
    }

    @Test
    void recordsThatAreGoneAreAGap() {
        assertEquals("TWP-LOG-GAP", code(at(10, 10), log(11, 20)));
        assertEquals("TWP-LOG-GAP", code(at(10, 10), log(12, 12)));
        assertEquals("TWP-LOG-GAP", code(at(0, 0), log(5, 20)), "nothing is applied, and the beginning is gone");
        assertEquals("TWP-LOG-GAP", code(at(10, 15), log(16, 20)));
    }

    @Test
    void marksOfTransactionsThatAreGoneAreNone() {
        assertEquals("", code(at(10, 10), log(11, 11)), "the log ended in the mark of the last transaction");
        assertEquals("", code(at(10, 15), log(15, 30)), "no record was there up to 15");
    }

    @Test
    void aLogThatEndsBeforeThePositionWasCut() {
        assertEquals("TWP-LOG-END", code(at(10, 10), log(0, 9)));
        assertEquals("", code(at(10, 10), new LogBounds("id", 0, 8, 10, 1)), "a transaction is open");
    }

    @Test
    void anotherRecordBeforeThePositionIsALogThatWasCutAndGrew() {
        OffsetDocument position = new OffsetDocument(1, 10, 10, "id", 5_000L);
        assertEquals("", overgrown(position, OptionalLong.of(5_000), true));
        assertEquals("TWP-LOG-END", overgrown(position, OptionalLong.of(5_001), true));
        assertEquals("TWP-LOG-END", overgrown(position, OptionalLong.of(4_999), true), "clocks of brokers differ");
        assertEquals("TWP-LOG-END", overgrown(position, OptionalLong.empty(), false), "the mark of a transaction");
        assertEquals("TWP-LOG-END", code(log(9, 20).overgrown(PARTITION, position, OptionalLong.empty(), false)));
        OffsetDocument second = new OffsetDocument(1, 1, 1, "id", 5_000L);
        assertEquals("TWP-LOG-END", overgrown(second, OptionalLong.of(5_001), true));
    }

    @Test
    void aRecordThatTheCleanerOrRetentionMayHaveRemovedProvesNothing() {
        OffsetDocument position = new OffsetDocument(1, 10, 10, "id", 5_000L);
        assertEquals("", overgrown(position, OptionalLong.empty(), true));
        assertEquals("", code(log(10, 20).overgrown(PARTITION, position, OptionalLong.empty(), false)));
        assertEquals("", overgrown(at(10, 10), OptionalLong.of(1), false), "its time is not stored");
        assertEquals("", overgrown(new OffsetDocument(1, 0, 0, "id", 5_000L), OptionalLong.empty(), false));
    }

    @Test
    void ofAPartitionThatStandsAtASchemaChangeThatRecordIsTheLastOne() {
        OffsetDocument standing = new OffsetDocument(1, 5, 5, "id", 1_000L).standingAt(10, "change", 5_000L);
        assertEquals(10, standing.lastRead());
        assertEquals("", overgrown(standing, OptionalLong.of(5_000), false));
        assertEquals("TWP-LOG-END", overgrown(standing, OptionalLong.of(1_000), false));
    }

    private static String overgrown(OffsetDocument position, OptionalLong found, boolean isCleaned) {
        return code(log(0, 20).overgrown(PARTITION, position, found, isCleaned));
    }

    private static String code(Optional<LogBounds.Broken> broken) {
        return broken.map(each -> each.getMessage().split(":")[0]).orElse("");
    }

    @Test
    void anotherTopicIsAnotherLogWhereverItIs() {
        for (LogBounds log : new LogBounds[] {log(0, 9), log(0, 20), log(11, 20)})
            assertEquals("TWP-LOG-TOPIC", code(new OffsetDocument(1, 10, 10, "before", null), log));
    }

    @Test
    void theMessageNamesPlaceOffsetsTimeAndTheWayOn() {
        OffsetDocument position = new OffsetDocument(
                1, 10, 10, "id", Instant.parse("2026-01-02T03:04:05.678Z").toEpochMilli());
        String words = log(12, 20).broken(PARTITION, position).orElseThrow().getMessage();
        for (String part : new String[] {
            "shop.shop.orders-3",
            "offset 10,",
            "2026-01-02T03:04:05Z",
            "offset 12",
            "--accept-log-gap",
            "verify",
            "repair"
        }) assertTrue(words.contains(part), words);
    }

    private static OffsetDocument at(long offset, long clear) {
        return new OffsetDocument(1, offset, clear, "id", null);
    }

    private static LogBounds log(long start, long end) {
        return new LogBounds("id", start, end, end, 1);
    }

    private static String code(OffsetDocument position, LogBounds log) {
        return code(log.broken(PARTITION, position));
    }
}
