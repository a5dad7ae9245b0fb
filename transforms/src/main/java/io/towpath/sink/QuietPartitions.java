package io.towpath.sink;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;

/** Checks the log of partitions from which nothing has come for a while. */
final class QuietPartitions {
    private static final long QUIET_NS = TimeUnit.SECONDS.toNanos(5);

    private final Function<Collection<TopicPartition>, Map<TopicPartition, LogBounds>> log;
    private final LogBounds.Source records;
    private final Map<TopicPartition, Reading> readings;
    private final LongSupplier clock;
    private long checkedNs;

    /**
     * @param log returns the bounds of partitions, with their ends
     * @param clock in nanoseconds
     */
    QuietPartitions(
            Function<Collection<TopicPartition>, Map<TopicPartition, LogBounds>> log,
            LogBounds.Source records,
            Map<TopicPartition, Reading> readings,
            LongSupplier clock) {
        this.log = log;
        this.records = records;
        this.readings = readings;
        this.clock = clock;
        this.checkedNs = clock.getAsLong();
    }

    /** How soon {@link #check} has something to do that should not wait; less than 0 when it has not. */
    long soonMs(Map<TopicPartition, OffsetDocument> positions) {
        boolean isDue = positions.entrySet().stream().anyMatch(entry -> {
            Reading reading = readings.get(entry.getKey());
            OffsetDocument position = entry.getValue();
            return reading != null
                    && position.offset() > 0
                    && position.clear() == position.offset()
                    && !reading.isUnreadBehind(position);
        });
        return isDue ? TimeUnit.NANOSECONDS.toMillis(QUIET_NS) : -1;
    }

    /**
     * Returns the offsets up to which the log holds no more records: there are only markers of transactions, which retention can delete
     * without a loss. Throws {@link LogBounds.Broken}.
     *
     * @param grown requires of the bounds of partitions that their logs were not cut short before the positions
     */
    Map<TopicPartition, Long> check(
            Map<TopicPartition, OffsetDocument> positions, Consumer<Map<TopicPartition, LogBounds>> grown) {
        long now = clock.getAsLong();
        if (now - checkedNs < QUIET_NS) return Map.of();
        checkedNs = now;
        Set<TopicPartition> quiet = positions.keySet().stream()
                .filter(partition -> isQuiet(partition, positions.get(partition), now))
                .collect(Collectors.toSet());
        if (quiet.isEmpty()) return Map.of();
        Map<TopicPartition, Long> clear = new HashMap<>();
        Map<TopicPartition, Long> open = new HashMap<>();
        try {
            Map<TopicPartition, LogBounds> current = log.apply(quiet);
            current.forEach((partition, bounds) -> {
                OffsetDocument position = positions.get(partition);
                bounds.requireContains(partition, position);
                long behind = bounds.stable() - position.clear();
                // a log without open transactions ends in the marker of one
                if (behind == 1 && bounds.stable() == bounds.end()) clear.put(partition, bounds.stable());
                else if (behind > 0 && !readings.get(partition).isUnreadBehind(position))
                    open.put(partition, bounds.stable());
            });
            grown.accept(current);
        } catch (Unanswered error) {
            return Map.of(); // the next time
        }
        if (!open.isEmpty()) clear.putAll(withoutRecords(open, positions));
        return clear;
    }

    private boolean isQuiet(TopicPartition partition, OffsetDocument position, long now) {
        Reading reading = readings.get(partition);
        return reading != null && reading.isQuiet(position, now, QUIET_NS);
    }

    private Map<TopicPartition, Long> withoutRecords(
            Map<TopicPartition, Long> ends, Map<TopicPartition, OffsetDocument> positions) {
        Map<TopicPartition, Long> starts = new HashMap<>();
        for (TopicPartition partition : ends.keySet())
            starts.put(partition, positions.get(partition).clear());
        Map<TopicPartition, Long> clear = new HashMap<>();
        records.firstTimes(starts).forEach((partition, time) -> {
            if (time.isPresent()) readings.get(partition).unreadBehind(starts.get(partition));
            else clear.put(partition, ends.get(partition));
        });
        return clear;
    }
}
