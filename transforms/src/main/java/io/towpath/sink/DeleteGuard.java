package io.towpath.sink;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonArray;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * Stops a sink that is so far behind that Kafka's cleaner may have dropped deletes before they were applied. A delete that was appended
 * at A is there until A + lag + delete.retention at least. The document of a partition says up to when it is known to be applied, as
 * {@code at}; and as {@code began} when the sink first opened it: a delete whose document was there then is there for
 * delete.retention from then on, however old it is, so that a first pass over an old log is safe for so long.
 */
final class DeleteGuard {
    static final String BEGAN = "began";
    static final String AT = "at";
    /** How often in the time that is allowed an idle partition is looked at. */
    private static final int LOOKS = 8;

    private static final long SHORTEST_MS = 100;

    /** Of one partition, in ms since the epoch. */
    private record Standing(long beganMs, long atMs) {}

    private final LogSettings log;
    private final LogEnd end;
    private final Map<TopicPartition, Standing> standings = new HashMap<>();
    private long lookedAtMs;

    DeleteGuard(LogSettings log) {
        this.log = log;
        this.end = new LogEnd(log.consumer());
    }

    /** What opening a partition sets in its document, as a stage of a pipeline. Where nothing was applied yet, it begins now. */
    BsonDocument opening(long nowMs) {
        BsonValue began = new BsonString(
                "$$REMOVE"); // so that what is old by then is not taken for true once the log is compacted
        BsonValue at = began;
        if (log.isCompacted()) {
            began = unlessNew(BEGAN, nowMs);
            at = unlessNew(AT, nowMs - log.lagMs());
        }
        return new BsonDocument(BEGAN, began).append(AT, at);
    }

    private static BsonDocument unlessNew(String name, long timeMs) {
        BsonDateTime time = new BsonDateTime(timeMs);
        BsonDocument isBegun =
                new BsonDocument("$gt", array(new BsonString("$" + OffsetDocument.OFFSET), new BsonInt64(0)));
        BsonDocument stored = new BsonDocument("$ifNull", array(new BsonString("$" + name), time));
        return new BsonDocument("$cond", array(isBegun, stored, time));
    }

    private static BsonArray array(BsonValue... values) {
        return new BsonArray(List.of(values));
    }

    /** The partition is this task's, and this is its document. */
    void found(TopicPartition partition, BsonDocument stored) {
        if (log.isCompacted() && stored.containsKey(AT))
            standings.put(partition, new Standing(time(stored, BEGAN), time(stored, AT)));
    }

    private static long time(BsonDocument stored, String name) {
        return stored.getDateTime(name).getValue();
    }

    void forget(TopicPartition partition) {
        standings.remove(partition);
    }

    /** Whether the partition's document says up to when it is applied. */
    boolean watches(TopicPartition partition) {
        return standings.containsKey(partition);
    }

    /** What the brokers appended up to then is applied. */
    void applied(TopicPartition partition, long atMs) {
        standings.computeIfPresent(partition, (unused, standing) -> new Standing(standing.beganMs, atMs));
    }

    boolean isOn() {
        return log.isCompacted();
    }

    /** How often, in ms, {@link #look} has to be called. */
    long everyMs() {
        return Math.max(SHORTEST_MS, log.deletesKeptMs() / LOOKS);
    }

    /**
     * Throws {@link ConnectException} when deletes may be gone that are not applied. Returns the partitions that are known now to be
     * applied up to a later time, seldom any.
     */
    Map<TopicPartition, Long> look(Map<TopicPartition, Long> positions) {
        long nowMs = System.currentTimeMillis();
        standings.forEach((partition, standing) -> require(partition, standing, nowMs));
        Map<TopicPartition, Long> old = positions.entrySet().stream()
                .filter(entry -> isOld(entry.getKey(), nowMs))
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
        if (old.isEmpty() || nowMs - lookedAtMs < everyMs() / 2) return Map.of();
        lookedAtMs = nowMs;
        Map<TopicPartition, Long> later = new HashMap<>(end.nextTimes(old));
        later.entrySet().removeIf(entry -> entry.getValue() <= standings.get(entry.getKey()).atMs);
        later.forEach(this::applied);
        return later;
    }

    private boolean isOld(TopicPartition partition, long nowMs) {
        return watches(partition) && standings.get(partition).atMs <= nowMs - everyMs();
    }

    private void require(TopicPartition partition, Standing standing, long nowMs) {
        if (nowMs <= standing.atMs + log.deletesKeptMs() || nowMs <= standing.beganMs + log.deleteRetentionMs()) return;
        throw new ConnectException(
                ("deletes may be missing in what is left to apply of %s: it is applied up to what came in until %s, and the log keeps "
                                + "deletes for %s (%s + %s). `towpath restart PIPELINE --accept-missed-deletes` has the sink go on; then "
                                + "`towpath verify PIPELINE` finds the documents that should be gone, and `towpath repair PIPELINE` "
                                + "deletes them. A replay is to be begun anew")
                        .formatted(
                                partition,
                                Instant.ofEpochMilli(standing.atMs).truncatedTo(ChronoUnit.SECONDS),
                                words(Duration.ofMillis(log.deletesKeptMs())),
                                LogSettings.LAG,
                                LogSettings.DELETE_RETENTION));
    }

    private static String words(Duration time) {
        return time.toHours() < 2 ? time.toSeconds() + " s" : time.toHours() + " h";
    }
}
