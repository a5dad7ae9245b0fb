package io.towpath.sink;

import io.towpath.sink.LogBounds.Broken;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
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

    private final LogBounds.Source log;
    private final QuietPartitions quiet;
    private final Map<TopicPartition, Reading> readings = new HashMap<>();
    private final Set<TopicPartition> unchecked = new HashSet<>();
    private CompletableFuture<Map<TopicPartition, LogBounds>> request;

    /** Without Kafka's address nothing is guarded. */
    static LogGuard of(LogSettings settings) {
        Properties consumer = settings.consumer();
        if (consumer.getProperty("bootstrap.servers", "").isEmpty()) return new LogGuard(null, null);
        return new LogGuard(new LogAdmin(consumer), new LogEnd(consumer));
    }

    LogGuard(LogBounds.Source log, LogEnd end) {
        this.log = log;
        this.quiet = new QuietPartitions(this::bounds, end, readings);
    }

    /**
     * This task has taken over the partitions at these positions. Returns the ids of their topics, of those that exist. Throws
     * {@link Broken}, and {@link Unanswered}.
     */
    Map<TopicPartition, String> opened(Map<TopicPartition, OffsetDocument> positions) {
        positions.forEach((partition, position) -> readings.put(partition, new Reading(position.offset())));
        if (log == null || positions.isEmpty()) return Map.of();
        Map<TopicPartition, String> topics = new HashMap<>();
        Map<TopicPartition, LogBounds> current = bounds(positions.keySet());
        current.forEach((partition, bounds) -> {
            bounds.requireContains(partition, positions.get(partition));
            topics.put(partition, bounds.topicId());
        });
        return topics;
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
        request = log == null || unchecked.isEmpty() ? null : log.bounds(Set.copyOf(unchecked), false);
    }

    /** Requires that no record is missing since the last call. Throws {@link Broken}, and {@link Unanswered}. */
    void require(Map<TopicPartition, OffsetDocument> positions) {
        if (log == null || unchecked.isEmpty()) return;
        if (request == null) prepare();
        CompletableFuture<Map<TopicPartition, LogBounds>> pending = request;
        request = null;
        await(pending).forEach((partition, bounds) -> {
            OffsetDocument position = positions.get(partition);
            Reading reading = readings.get(partition);
            if (position == null || reading == null) return;
            bounds.requireTopic(partition, position);
            if (reading.hasLost(bounds)) throw bounds.gap(partition, position);
            reading.checked();
        });
        unchecked.clear();
    }

    /** How soon {@link #checkQuiet} has something to do that should not wait; less than 0 when it has not. */
    long soonMs(Map<TopicPartition, OffsetDocument> positions) {
        return log == null ? -1 : quiet.soonMs(positions);
    }

    /** Called before each transaction's first poll; see {@link QuietPartitions#check}. */
    Map<TopicPartition, Long> checkQuiet(Map<TopicPartition, OffsetDocument> positions) {
        return log == null ? Map.of() : quiet.check(positions);
    }

    private Map<TopicPartition, LogBounds> bounds(Collection<TopicPartition> partitions) {
        return await(log.bounds(partitions, true));
    }

    private static Map<TopicPartition, LogBounds> await(CompletableFuture<Map<TopicPartition, LogBounds>> response) {
        return Unanswered.await(
                response, PATIENCE_S, "cannot check whether the log still holds all records that are not applied");
    }

    @Override
    public void close() {
        if (log != null) log.close();
    }
}
