package io.towpath.sink;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * Stops a sink that is so far behind that Kafka's cleaner may have dropped deletes before they were applied. The log keeps a delete that
 * was appended at A at least until A + lag + delete.retention. A partition's document stores the time up to which the partition is known to
 * be applied ({@code at}), and when the sink first opened it ({@code began}). A delete of a document that the log held then stays for
 * delete.retention from then on, however old it is, so a first pass over an old log is safe for that long.
 */
final class DeleteGuard {
    static final String BEGAN = "began";
    static final String AT = "at";
    /** How often an idle partition is checked within the time that deletes are kept. */
    private static final int CHECKS = 8;

    private static final long SHORTEST_MS = 100;

    /** Of one partition, in ms since the epoch. */
    private record AppliedTimes(long beganMs, long atMs) {}

    private final LogSettings log;
    private final Function<Map<TopicPartition, Long>, Map<TopicPartition, OptionalLong>> end;
    private final LongSupplier clock;
    private final Map<TopicPartition, AppliedTimes> times = new HashMap<>();
    private long checkedAtMs;

    DeleteGuard(LogSettings log) {
        this(log, new LogEnd(log.consumer())::firstTimes, System::currentTimeMillis);
    }

    /**
     * @param end as {@link LogEnd#firstTimes}
     * @param clock in milliseconds
     */
    DeleteGuard(
            LogSettings log,
            Function<Map<TopicPartition, Long>, Map<TopicPartition, OptionalLong>> end,
            LongSupplier clock) {
        this.log = log;
        this.end = end;
        this.clock = clock;
    }

    /** What opening a partition sets in its document, for a $set stage. Where nothing was applied yet, both times begin now. */
    BsonDocument opening(long nowMs) {
        BsonValue began =
                new BsonString("$$REMOVE"); // else times from before would count once the log is compacted again
        BsonValue at = began;
        if (log.isCompacted()) {
            began = unlessNew(BEGAN, nowMs);
            at = unlessNew(AT, nowMs - log.lagMs());
        }
        return new BsonDocument(BEGAN, began).append(AT, at);
    }

    private static BsonDocument unlessNew(String name, long timeMs) {
        return BsonDocument.parse("{$cond: [{$gt: ['$offset', {$numberLong: '0'}]}, {$ifNull: ['$%1$s', %2$s]}, %2$s]}"
                .formatted(name, "{$date: {$numberLong: '%d'}}".formatted(timeMs)));
    }

    /** This task has taken over the partition with this document. */
    void opened(TopicPartition partition, BsonDocument stored) {
        if (log.isCompacted() && stored.containsKey(AT))
            times.put(partition, new AppliedTimes(time(stored, BEGAN), time(stored, AT)));
    }

    private static long time(BsonDocument stored, String name) {
        return stored.getDateTime(name).getValue();
    }

    void forget(TopicPartition partition) {
        times.remove(partition);
    }

    /** Whether the partition's document has the times. */
    boolean watches(TopicPartition partition) {
        return times.containsKey(partition);
    }

    /** What the brokers appended up to {@code atMs} is applied. */
    void applied(TopicPartition partition, long atMs) {
        times.computeIfPresent(partition, (unused, known) -> new AppliedTimes(known.beganMs, atMs));
    }

    boolean isOn() {
        return log.isCompacted();
    }

    /** How often, in ms, {@link #check} has to be called. */
    long intervalMs() {
        return Math.max(SHORTEST_MS, log.deletesKeptMs() / CHECKS);
    }

    /**
     * Throws {@link ConnectException} when deletes that are not applied may be gone. Returns the times of partitions that are now known to
     * be applied further; mostly none.
     */
    Map<TopicPartition, Long> check(Map<TopicPartition, Long> positions) {
        long nowMs = clock.getAsLong();
        times.forEach((partition, applied) -> require(partition, applied, nowMs));
        Map<TopicPartition, Long> old = positions.entrySet().stream()
                .filter(entry -> isOld(entry.getKey(), nowMs))
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
        if (old.isEmpty() || nowMs - checkedAtMs < intervalMs() / 2) return Map.of();
        checkedAtMs = nowMs;
        Map<TopicPartition, Long> later = new HashMap<>();
        end.apply(old).forEach((partition, time) -> later.put(partition, time.orElse(nowMs)));
        later.entrySet().removeIf(entry -> entry.getValue() <= times.get(entry.getKey()).atMs);
        later.forEach(this::applied);
        return later;
    }

    private boolean isOld(TopicPartition partition, long nowMs) {
        return watches(partition) && times.get(partition).atMs <= nowMs - intervalMs();
    }

    private void require(TopicPartition partition, AppliedTimes applied, long nowMs) {
        if (nowMs <= applied.atMs + log.deletesKeptMs() || nowMs <= applied.beganMs + log.deleteRetentionMs()) return;
        throw new ConnectException(
                ("TWP-DELETES-MISSED: deletes of %s may be gone from the log before they were applied: the sink has applied what was "
                                + "appended until %s, and the log keeps deletes for %s (%s + %s). `towpath restart PIPELINE "
                                + "--accept-missed-deletes` lets the sink continue; then `towpath verify PIPELINE` finds the documents "
                                + "that should be gone, and `towpath repair PIPELINE` deletes them. A replay has to start again")
                        .formatted(
                                partition,
                                Instant.ofEpochMilli(applied.atMs).truncatedTo(ChronoUnit.SECONDS),
                                text(Duration.ofMillis(log.deletesKeptMs())),
                                LogSettings.LAG,
                                LogSettings.DELETE_RETENTION));
    }

    private static String text(Duration time) {
        return time.toHours() < 2 ? time.toSeconds() + " s" : time.toHours() + " h";
    }
}
