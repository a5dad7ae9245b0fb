package io.towpath.sink;

import io.towpath.sink.LogBounds.Broken;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongSupplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Stops a sink whose position is not in its log: records behind it are gone, or the log ends before it, or the topic is another one.
 * Kafka's consumer silently continues at the log's beginning then. So whenever offsets are missing between two records, the guard asks
 * Kafka, after the records came and before their transaction commits, whether the log still holds the place. If it does, the missing
 * offsets are markers of transactions, or what the cleaner removed, and nothing was deleted unread.
 */
final class LogGuard implements AutoCloseable {
    private static final long PATIENCE_S = 12;
    private static final String FAILURE = "cannot check whether the log still holds all records that are not applied";

    private final LogBounds.Source log;
    private final long lagMs;
    private final LongSupplier clock;
    private final QuietPartitions quiet;
    private final Map<TopicPartition, Reading> readings = new HashMap<>();
    private final Set<TopicPartition> unchecked = new HashSet<>();
    private CompletableFuture<Map<TopicPartition, LogBounds>> request;

    /** Without Kafka's address nothing is guarded. */
    static LogGuard of(LogSettings settings) {
        Properties consumer = settings.consumer();
        if (consumer.getProperty("bootstrap.servers", "").isEmpty()) return new LogGuard(null, settings.lagMs());
        return new LogGuard(new LogAdmin(consumer), settings.lagMs());
    }

    /** @param log null to guard nothing */
    LogGuard(LogBounds.Source log, long lagMs) {
        this(log, lagMs, System::nanoTime);
    }

    /**
     * @param lagMs before the cleaner may remove a record; less than 0 when it never does
     * @param clock in nanoseconds
     */
    LogGuard(LogBounds.Source log, long lagMs, LongSupplier clock) {
        this.log = log;
        this.lagMs = lagMs;
        this.clock = clock;
        this.quiet = new QuietPartitions(this::bounds, log, readings, clock);
    }

    /**
     * This task has taken over the partitions at these positions. Returns the ids of their topics, of those that exist. Throws
     * {@link Broken}, and {@link Unanswered}.
     */
    Map<TopicPartition, String> opened(Map<TopicPartition, OffsetDocument> positions) {
        positions.forEach((partition, position) -> readings.put(partition, new Reading(position.offset(), clock)));
        if (log == null || positions.isEmpty()) return Map.of();
        Map<TopicPartition, String> topics = new HashMap<>();
        Map<TopicPartition, LogBounds> current = bounds(positions.keySet());
        current.forEach((partition, bounds) -> {
            bounds.requireContains(partition, positions.get(partition));
            topics.put(partition, bounds.topicId());
        });
        requireGrown(current, positions);
        return topics;
    }

    /**
     * Requires that the last records that were read are still the ones before these positions, wherever another leader may have cut the log
     * short since they were last found there. Throws {@link Broken}, and {@link Unanswered}.
     */
    private void requireGrown(Map<TopicPartition, LogBounds> current, Map<TopicPartition, OffsetDocument> positions) {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        current.forEach((partition, bounds) -> {
            OffsetDocument position = positions.get(partition);
            boolean isStored = position.lastRead() >= 0 && position.lastAtMs() != null;
            if (isStored && readings.get(partition).isUnproven(bounds)) offsets.put(partition, position.lastRead());
        });
        if (offsets.isEmpty()) return;
        Map<TopicPartition, OptionalLong> times = log.timesAt(offsets);
        if (!times.keySet().containsAll(offsets.keySet())) throw new Unanswered(FAILURE);
        // after the records were read: retention may have deleted one since
        bounds(offsets.keySet()).forEach((partition, bounds) -> {
            OffsetDocument position = positions.get(partition);
            bounds.overgrown(partition, position, times.get(partition), mayBeCleaned(position))
                    .ifPresent(broken -> {
                        throw broken;
                    });
            readings.get(partition).proven(current.get(partition));
        });
    }

    /** With half of the lag, because the brokers' clocks and this one may differ. */
    private boolean mayBeCleaned(OffsetDocument position) {
        return lagMs >= 0 && System.currentTimeMillis() - position.lastAtMs() > lagMs / 2;
    }

    /** The position was reloaded; the consumer continues there, or had passed it already. */
    void moved(TopicPartition partition, OffsetDocument position) {
        Reading reading = readings.get(partition);
        if (reading != null) reading.moveTo(position.offset());
    }

    void forget(TopicPartition partition) {
        readings.remove(partition);
        unchecked.remove(partition);
    }

    /** These records were delivered. Throws {@link Broken} when Kafka has gone back before what is applied. */
    void received(List<SinkRecord> records, Map<TopicPartition, OffsetDocument> positions) {
        if (log == null) return;
        SinkRecord last = null;
        Reading reading = null;
        for (SinkRecord record : records) {
            if (last == null || !Records.areOfOnePartition(last, record)) {
                TopicPartition partition = Records.partition(record);
                reading = readings.get(partition);
                if (reading != null) {
                    unchecked.add(partition);
                    reading.begin(partition, record, positions.get(partition));
                }
            }
            if (reading != null) reading.add(record);
            last = record;
        }
    }

    /** Requests what {@link #require} needs, so that it is there in time. */
    void prepare() {
        if (log == null || unchecked.isEmpty()) {
            request = null;
            return;
        }
        boolean isSeeked =
                unchecked.stream().map(readings::get).anyMatch(reading -> reading != null && reading.isSeeked());
        request = log.bounds(Set.copyOf(unchecked), isSeeked);
    }

    /** Requires that no record is missing since the last call. Throws {@link Broken}, and {@link Unanswered}. */
    void require(Map<TopicPartition, OffsetDocument> positions) {
        if (log == null || unchecked.isEmpty()) return;
        if (request == null) prepare();
        CompletableFuture<Map<TopicPartition, LogBounds>> pending = request;
        request = null;
        Map<TopicPartition, LogBounds> current = new HashMap<>(await(pending));
        current.keySet().removeIf(partition -> !positions.containsKey(partition) || !readings.containsKey(partition));
        current.forEach((partition, bounds) -> {
            OffsetDocument position = positions.get(partition);
            Reading reading = readings.get(partition);
            bounds.requireTopic(partition, position);
            if (reading.hasLost(bounds)) throw bounds.gap(partition, position);
        });
        Map<TopicPartition, LogBounds> seeked = new HashMap<>(current);
        seeked.keySet().removeIf(partition -> !readings.get(partition).isSeeked());
        requireGrown(seeked, positions);
        current.keySet().forEach(partition -> readings.get(partition).checked());
        unchecked.clear();
    }

    /** How soon {@link #checkQuiet} has something to do that should not wait; less than 0 when it has not. */
    long soonMs(Map<TopicPartition, OffsetDocument> positions) {
        return log == null ? -1 : quiet.soonMs(positions);
    }

    /** Called before each transaction's first poll; see {@link QuietPartitions#check}. */
    Map<TopicPartition, Long> checkQuiet(Map<TopicPartition, OffsetDocument> positions) {
        return log == null ? Map.of() : quiet.check(positions, current -> requireGrown(current, positions));
    }

    private Map<TopicPartition, LogBounds> bounds(Collection<TopicPartition> partitions) {
        return await(log.bounds(partitions, true));
    }

    private static Map<TopicPartition, LogBounds> await(CompletableFuture<Map<TopicPartition, LogBounds>> response) {
        return Unanswered.await(response, PATIENCE_S, FAILURE);
    }

    @Override
    public void close() {
        if (log != null) log.close();
    }
}
