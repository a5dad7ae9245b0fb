package io.towpath.sink;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * One partition of the log, as Kafka reports it, and whether a sink can continue in it. {@code towpath/log/bounds.py} decides alike.
 *
 * @param topicId of the topic; a later topic of the same name has another one
 * @param start the first offset that is left
 * @param stable the end of what is committed
 * @param end of what is written
 * @param leaderEpoch of the leader that reported the ends; a log is cut short only where another leader follows
 */
record LogBounds(String topicId, long start, long stable, long end, int leaderEpoch) {
    /** Reads the bounds of partitions. */
    interface Source extends AutoCloseable {
        /** Where these partitions begin, and with {@code ends} where they end. Omits topics that do not exist. */
        CompletableFuture<Map<TopicPartition, LogBounds>> bounds(Collection<TopicPartition> partitions, boolean ends);

        /** As {@link LogEnd#firstTimes}. */
        Map<TopicPartition, OptionalLong> firstTimes(Map<TopicPartition, Long> positions);

        /** As {@link LogEnd#timesAt}. */
        Map<TopicPartition, OptionalLong> timesAt(Map<TopicPartition, Long> offsets);

        @Override
        void close();
    }

    /** Where the ends were not requested. */
    static final long UNKNOWN = Long.MAX_VALUE;

    /** Where the ends were not requested, or the broker did not say. */
    static final int NO_EPOCH = -1;

    private static final String WAY_ON =
            " `towpath restart PIPELINE --accept-log-gap` lets the sink continue at %s; then `towpath verify PIPELINE` "
                    + "finds what differs, and `towpath repair PIPELINE` repairs it. A replay has to start again";

    /** The log does not contain the position. The message begins with a code by which {@code towpath} identifies it. */
    static final class Broken extends ConnectException {
        private static final long serialVersionUID = 1;

        Broken(String words) {
            super(words);
        }
    }

    /** Why a sink cannot continue at this position; empty when all that was written behind it is still there. */
    Optional<Broken> broken(TopicPartition partition, OffsetDocument position) {
        if (position.topicId() != null && !position.topicId().equals(topicId))
            return Optional.of(new Broken(
                    "TWP-LOG-TOPIC: the topic of %s was deleted and created again: the sink had applied %s of the topic %s, and the topic is %s now."
                                    .formatted(partition, upTo(position), position.topicId(), topicId)
                            + WAY_ON.formatted("the new topic's beginning, offset " + start)));
        if (position.offset() > end) return Optional.of(beyondTheEnd(partition, position, "the log ends at " + end));
        return start > position.clear() && !isEmptyBehind(position)
                ? Optional.of(gap(partition, position))
                : Optional.empty();
    }

    /**
     * Why a sink cannot continue at this position, although the log reaches beyond it: it was cut short before the position and has grown
     * since, so the last record that was read is another one now. Empty where nothing proves that.
     *
     * @param found the broker's time of the record at {@link OffsetDocument#lastRead}; empty when there is none
     * @param isCleaned whether Kafka's cleaner may have removed the record
     */
    Optional<Broken> overgrown(
            TopicPartition partition, OffsetDocument position, OptionalLong found, boolean isCleaned) {
        long offset = position.lastRead();
        if (offset < 0 || position.lastAtMs() == null) return Optional.empty();
        if (found.isPresent() && found.getAsLong() == position.lastAtMs()) return Optional.empty();
        if (found.isEmpty() && (isCleaned || start > offset)) return Optional.empty();
        String there = found.isPresent() ? "has a record of " + text(found.getAsLong()) : "has no record";
        return Optional.of(beyondTheEnd(
                partition,
                position,
                "offset %d %s now: brokers lost the end of the log, and it has grown since".formatted(offset, there)));
    }

    /** Throws {@link Broken} where a sink cannot continue at this position. */
    void requireContains(TopicPartition partition, OffsetDocument position) {
        broken(partition, position).ifPresent(broken -> {
            throw broken;
        });
    }

    /** Throws {@link Broken} where the topic is not the one of the position. */
    void requireTopic(TopicPartition partition, OffsetDocument position) {
        if (position.topicId() != null && !position.topicId().equals(topicId)) requireContains(partition, position);
    }

    /** Whether the log is empty and lost only a marker: every log of an exactly-once source ends in the marker of a transaction. */
    private boolean isEmptyBehind(OffsetDocument position) {
        return position.clear() + 1 == start && start == end;
    }

    Broken gap(TopicPartition partition, OffsetDocument position) {
        return new Broken(
                "TWP-LOG-GAP: records of %s that the sink has not applied are gone from the log: it has applied %s, and the log begins at offset %d."
                                .formatted(partition, upTo(position), start)
                        + WAY_ON.formatted("the log's beginning"));
    }

    static Broken beyondTheEnd(TopicPartition partition, OffsetDocument position, String log) {
        return new Broken(
                "TWP-LOG-END: the log of %s is shorter than what the sink has applied: it has applied %s, and %s."
                                .formatted(partition, upTo(position), log)
                        + WAY_ON.formatted("the log's end"));
    }

    private static String upTo(OffsetDocument position) {
        String since = position.lastAtMs() == null ? "" : ", stored at " + text(position.lastAtMs());
        return "up to offset %d%s".formatted(position.offset(), since);
    }

    private static Instant text(long ms) {
        return Instant.ofEpochMilli(ms).truncatedTo(ChronoUnit.SECONDS);
    }
}
