package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.sink.LogBounds.Broken;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

/** What a running sink notices of a log that is deleted under it, by the offsets that come and the log's beginning after they came. */
class LogGuardTest {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final long QUIET_NS = TimeUnit.SECONDS.toNanos(5);

    private final Map<TopicPartition, OffsetDocument> positions = new HashMap<>();
    private LogBounds log = new LogBounds("id", 0, 100, 100, 1);
    private final Map<Long, Long> times = new HashMap<>();
    private boolean answers = true;
    private boolean saysWhichRecord = true;
    private int questions;
    private int reads;
    /** The first record behind a position; empty when there is none, null when Kafka does not say. */
    private OptionalLong behind = OptionalLong.empty();

    private int looks;
    private long nowNs = TimeUnit.DAYS.toNanos(1);
    private final LogBounds.Source kafka = new LogBounds.Source() {
        @Override
        public CompletableFuture<Map<TopicPartition, LogBounds>> bounds(
                Collection<TopicPartition> partitions, boolean ends) {
            questions++;
            if (!answers) return CompletableFuture.failedFuture(new IllegalStateException("no answer"));
            return CompletableFuture.completedFuture(Map.of(
                    PARTITION,
                    ends
                            ? log
                            : new LogBounds(
                                    log.topicId(),
                                    log.start(),
                                    LogBounds.UNKNOWN,
                                    LogBounds.UNKNOWN,
                                    LogBounds.NO_EPOCH)));
        }

        @Override
        public Map<TopicPartition, OptionalLong> firstTimes(Map<TopicPartition, Long> positions) {
            looks++;
            assertEquals(Set.of(PARTITION), positions.keySet());
            return behind == null ? Map.of() : Map.of(PARTITION, behind);
        }

        @Override
        public Map<TopicPartition, OptionalLong> timesAt(Map<TopicPartition, Long> offsets) {
            reads++;
            Map<TopicPartition, OptionalLong> found = new HashMap<>();
            if (!saysWhichRecord) return found;
            offsets.forEach((partition, offset) -> found.put(
                    partition, times.containsKey(offset) ? OptionalLong.of(times.get(offset)) : OptionalLong.empty()));
            return found;
        }

        @Override
        public void close() {}
    };
    private LogGuard guard = new LogGuard(kafka, -1, () -> nowNs);

    @Test
    void offsetsThatAreMissingAreMarksWhileTheLogStillHoldsTheirPlace() {
        opened(10);
        came(10, 11, 13, 14);
        required();
        applied(15);
        log = log(15);
        came(16, 17);
        required();
    }

    @Test
    void offsetsThatAreMissingAreAGapOnceTheLogBeginsBehindThem() {
        opened(10);
        came(10, 11);
        required();
        applied(12);
        log = log(20);
        came(20, 21);
        assertBroken("TWP-LOG-GAP", this::required);
        assertEquals(12, positions.get(PARTITION).offset());
    }

    @Test
    void whatIsMissingBetweenTwoPollsOfOneTransactionIsSeen() {
        opened(10);
        came(10, 11);
        log = log(20);
        came(20, 21);
        came(22);
        assertBroken("TWP-LOG-GAP", this::required);
    }

    @Test
    void theFirstOfSeveralHolesIsRememberedAlsoAtTheBeginning() {
        opened(0);
        came(2, 5);
        log = log(1);
        assertBroken("TWP-LOG-GAP", this::required);
    }

    @Test
    void aPositionThatIsNotInTheLogIsNotTakenOver() {
        log = log(20);
        assertBroken("TWP-LOG-GAP", () -> opened(10));
        times.put(0L, 7_000L);
        log = log(0);
        assertBroken("TWP-LOG-END", () -> opened(1, 5_000));
    }

    @Test
    void recordsWithoutAHoleAreWellWhateverRetentionDeletesMeanwhile() {
        opened(10);
        came(10, 11, 12);
        log = log(13);
        required();
    }

    @Test
    void aHoleThatWasSeenToBeThereIsNotJudgedAgain() {
        opened(10);
        came(10, 12);
        required();
        log = log(13);
        came(13, 14);
        required();
    }

    @Test
    void theMarkBehindWhatIsAppliedMayGo() {
        opened(10);
        positions.computeIfPresent(PARTITION, (unused, position) -> position.clearTo(12));
        log = log(12);
        came(12, 13);
        required();
    }

    @Test
    void goingBackBeforeWhatIsAppliedIsALogThatWasCut() {
        opened(10);
        assertBroken("TWP-LOG-END", () -> came(3, 4));
    }

    @Test
    void whatConnectHandsOverOnceMoreIsNotGoingBack() {
        opened(10);
        List<SinkRecord> poll = records(10, 11);
        guard.received(poll, positions);
        applied(11); // a part of it, before the rest failed
        guard.moved(PARTITION, positions.get(PARTITION));
        assertDoesNotThrow(() -> guard.received(poll, positions));
        required();
        applied(12);
        came(12);
        required();
    }

    @Test
    void whatIsReadAgainAfterAFailoverIsNotGoingBack() {
        opened(10);
        came(10, 11, 12, 13);
        required();
        applied(14);
        position(11);
        guard.moved(PARTITION, positions.get(PARTITION));
        came(11, 12);
        required();
        log = log(20);
        position(11);
        guard.moved(PARTITION, positions.get(PARTITION));
        came(20);
        assertBroken("TWP-LOG-GAP", this::required);
    }

    @Test
    void aTopicThatWasMadeAgainIsSeenWithoutAHole() {
        opened(10);
        log = new LogBounds("another", 0, 100, 100, 1);
        came(10, 11);
        assertBroken("TWP-LOG-TOPIC", this::required);
    }

    @Test
    void aTransactionAsksOnce() {
        opened(10);
        int before = questions;
        came(10, 11);
        came(13);
        guard.prepare();
        guard.require(positions);
        guard.require(positions);
        assertEquals(1, questions - before);
    }

    @Test
    void aLogThatWasCutShortAndGrewBeyondThePositionIsSeenWhenItIsTakenOver() {
        times.put(9L, 7_000L);
        assertBroken("TWP-LOG-END", () -> opened(10, 5_000));
        times.put(9L, 5_000L);
        opened(10, 5_000);
    }

    @Test
    void aLogThatIsCutShortBeforeTheFirstRecordsComeIsSeenWhenTheyCome() {
        times.put(9L, 5_000L);
        opened(10, 5_000);
        cutShort();
        came(10);
        assertBroken("TWP-LOG-END", this::required);
    }

    @Test
    void aLogThatIsCutShortAfterTheConsumerWasSentToThePositionIsSeenWhenRecordsCome() {
        times.put(9L, 5_000L);
        opened(10, 5_000);
        came(10);
        required();
        position(10, 5_000);
        guard.moved(PARTITION, positions.get(PARTITION));
        cutShort();
        came(10);
        assertBroken("TWP-LOG-END", this::required);
    }

    @Test
    void recordsAreReadAgainOnlyWhereAnotherLeaderMayHaveCutTheLog() {
        times.put(9L, 5_000L);
        opened(10, 5_000);
        came(10);
        required();
        applied(11);
        came(11);
        required();
        assertEquals(1, reads, "the leader is the same");
        position(10, 5_000);
        guard.moved(PARTITION, positions.get(PARTITION));
        log = new LogBounds("id", 0, 100, 100, 2);
        came(10);
        required();
        assertEquals(2, reads);
    }

    @Test
    void nothingIsAppliedWhileKafkaDoesNotSayWhichRecordIsThere() {
        saysWhichRecord = false;
        assertThrows(Unanswered.class, () -> opened(10, 5_000));
    }

    /** The brokers' clocks and this one may differ by half of the lag. */
    @Test
    void theLastRecordMayBeMissingOnlyOnceTheCleanerMayHaveRemovedIt() {
        assertBroken("TWP-LOG-END", () -> opened(10, 5_000));
        guard = new LogGuard(kafka, 1_000_000, () -> nowNs);
        opened(10, System.currentTimeMillis() - 600_000);
        assertBroken("TWP-LOG-END", () -> opened(10, System.currentTimeMillis() - 400_000));
        guard = new LogGuard(kafka, 0, () -> nowNs);
        opened(10, System.currentTimeMillis() - 1_000);
    }

    @Test
    void theMarkerThatEndsAQuietLogIsNoRecord() {
        opened(10);
        log = ends(11, 11);
        assertEquals(Map.of(), guard.checkQuiet(positions), "it is not quiet yet");
        assertEquals(Map.of(PARTITION, 11L), quiet());
        assertEquals(0, looks);
        assertEquals(Map.of(), guard.checkQuiet(positions), "it was checked just now");
        log = ends(10, 10);
        assertEquals(Map.of(), quiet(), "nothing is behind the position");
    }

    @Test
    void moreBehindAQuietPositionIsReadToSeeWhetherItIsARecord() {
        opened(10);
        log = ends(11, 12); // a transaction is open
        assertEquals(Map.of(PARTITION, 11L), quiet());
        log = ends(15, 15);
        behind = null;
        assertEquals(Map.of(), quiet());
        behind = OptionalLong.of(1);
        assertEquals(Map.of(), quiet());
        assertEquals(3, looks);
        behind = OptionalLong.empty();
        assertEquals(Map.of(), quiet(), "the record has not come yet");
        assertEquals(3, looks);
        came(14);
        applied(15);
        log = ends(17, 17);
        assertEquals(Map.of(PARTITION, 17L), quiet());
        assertEquals(4, looks);
    }

    @Test
    void aPartitionWithRecordsThatAreNotAppliedIsNotQuiet() {
        opened(10);
        log = ends(20, 20);
        came(10);
        assertEquals(Map.of(), quiet());
        applied(11);
        assertEquals(Map.of(PARTITION, 20L), quiet());
        nowNs += QUIET_NS - 1;
        came(11);
        applied(12);
        nowNs++;
        assertEquals(Map.of(), guard.checkQuiet(positions));
    }

    @Test
    void aQuietLogIsCheckedLikeOneFromWhichRecordsCome() {
        times.put(9L, 5_000L);
        opened(10, 5_000);
        answers = false;
        assertEquals(Map.of(), quiet(), "the next time");
        answers = true;
        log = log(12);
        assertBroken("TWP-LOG-GAP", this::quiet);
        cutShort();
        assertBroken("TWP-LOG-END", this::quiet);
    }

    @Test
    void connectComesBackSoonWhileTheLogMayHaveAMarkerBehindThePosition() {
        opened(0);
        assertEquals(-1, guard.soonMs(positions), "nothing was applied");
        opened(10);
        assertEquals(5_000, guard.soonMs(positions));
        log = ends(15, 15);
        behind = OptionalLong.of(1);
        quiet();
        assertEquals(-1, guard.soonMs(positions), "a record is to come");
        applied(15);
        assertEquals(5_000, guard.soonMs(positions));
        positions.computeIfPresent(PARTITION, (unused, position) -> position.clearTo(16));
        assertEquals(-1, guard.soonMs(positions));
        guard.forget(PARTITION);
        applied(20);
        assertEquals(-1, guard.soonMs(positions));
    }

    /** After a while without records. */
    private Map<TopicPartition, Long> quiet() {
        nowNs += QUIET_NS + 1;
        return guard.checkQuiet(positions);
    }

    private static LogBounds ends(long stable, long end) {
        return new LogBounds("id", 0, stable, end, 1);
    }

    /** Brokers lose the end of the log, and the source continues to write. */
    private void cutShort() {
        times.put(9L, 7_000L);
        log = new LogBounds("id", 0, 100, 100, 2);
    }

    private void opened(long offset, long atMs) {
        position(offset, atMs);
        guard.opened(positions);
    }

    private void position(long offset, long atMs) {
        positions.put(PARTITION, new OffsetDocument(1, offset, offset, "id", atMs));
    }

    private void opened(long offset) {
        position(offset);
        assertEquals(Map.of(PARTITION, "id"), guard.opened(positions));
    }

    private void position(long offset) {
        positions.put(PARTITION, new OffsetDocument(1, offset, offset, "id", null));
    }

    private void applied(long next) {
        positions.computeIfPresent(PARTITION, (unused, position) -> position.movedTo(next, null));
    }

    private void came(long... offsets) {
        guard.received(records(offsets), positions);
    }

    private void required() {
        guard.prepare();
        guard.require(positions);
    }

    private static List<SinkRecord> records(long... offsets) {
        return Arrays.stream(offsets)
                .mapToObj(offset -> new SinkRecord("t", 0, null, null, null, null, offset))
                .toList();
    }

    private static LogBounds log(long start) {
        return new LogBounds("id", start, 100, 100, 1);
    }

    private static void assertBroken(String code, Runnable act) {
        Broken broken = assertThrows(Broken.class, act::run);
        assertTrue(broken.getMessage().startsWith(code + ": "), broken.getMessage());
    }
}
