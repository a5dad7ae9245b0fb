package io.towpath.sink;

import io.towpath.sink.LogBounds.Broken;
import java.lang.ref.WeakReference;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Stops a sink whose position is not in its log: records behind it are gone, or the log ends before it, or the topic is another one. Kafka's
 * consumer goes on in silence then, at the log's beginning. So whenever offsets are missing between two records, the log is asked after
 * they came, and before the transaction with them is committed, whether it still holds the place where they are missing: then they are
 * marks of transactions, or what the cleaner took, and nothing was deleted unread.
 */
final class LogGuard implements AutoCloseable {
    private static final long PATIENCE_S = 12;
    private static final long QUIET_NS = TimeUnit.SECONDS.toNanos(5);

    /** What tells the bounds of partitions. */
    interface Log extends AutoCloseable {
        /** Where these partitions begin, and with {@code ends} where they end. Nothing of a topic that is not there. */
        CompletableFuture<Map<TopicPartition, LogBounds>> bounds(Collection<TopicPartition> partitions, boolean ends);

        @Override
        void close();
    }

    /** Kafka does not say. */
    static final class Unanswered extends RuntimeException {
        private static final long serialVersionUID = 1;

        private Unanswered(Exception cause) {
            super("cannot see whether the log still holds all that is to be applied: " + cause, cause);
        }
    }

    /** What has come of a partition. */
    private static final class Reading {
        long next;
        /** The first record of the last poll, which Connect hands over once more when it was not taken. */
        WeakReference<SinkRecord> first = new WeakReference<>(null);
        /** The first offset that was missing since the log was asked last; -1 when none was. */
        long hole = -1;
        /** A record is known to lie behind this offset, up to which the log was clear. */
        long unread = -1;

        long seenNs = System.nanoTime();

        Reading(long next) {
            this.next = next;
        }
    }

    private final Log log;
    private final LogEnd end;
    private final Map<TopicPartition, Reading> readings = new HashMap<>();
    private final Set<TopicPartition> toCheck = new HashSet<>();
    private CompletableFuture<Map<TopicPartition, LogBounds>> asked;
    private long lookedNs = System.nanoTime();

    /** Without Kafka's address nothing is guarded. */
    static LogGuard of(LogSettings settings) {
        Properties consumer = settings.consumer();
        if (consumer.getProperty("bootstrap.servers", "").isEmpty()) return new LogGuard(null, null);
        return new LogGuard(new LogAdmin(consumer), new LogEnd(consumer));
    }

    LogGuard(Log log, LogEnd end) {
        this.log = log;
        this.end = end;
    }

    /**
     * The partitions are this task's, at these positions. Returns the ids of their topics, of those that are there. Throws {@link Broken},
     * and {@link Unanswered}.
     */
    Map<TopicPartition, String> opened(Map<TopicPartition, OffsetDocument> positions) {
        positions.forEach((partition, position) -> readings.put(partition, new Reading(position.offset())));
        if (log == null || positions.isEmpty()) return Map.of();
        Map<TopicPartition, LogBounds> found = answer(log.bounds(positions.keySet(), true));
        found.forEach((partition, bounds) -> bounds.broken(partition, positions.get(partition))
                .ifPresent(broken -> {
                    throw broken;
                }));
        return found.entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue()
                .topicId()));
    }

    /** The position was read again; the consumer goes on there, or was further on already. */
    void moved(TopicPartition partition, OffsetDocument position) {
        Reading reading = readings.get(partition);
        if (reading != null) reading.next = position.offset();
    }

    void forget(TopicPartition partition) {
        readings.remove(partition);
        toCheck.remove(partition);
    }

    /** These came. Throws {@link Broken} when Kafka has gone back before what is applied. */
    void came(List<SinkRecord> records, Map<TopicPartition, OffsetDocument> positions) {
        if (log == null) return;
        TopicPartition partition = null;
        Reading reading = null;
        for (SinkRecord record : records) {
            if (partition == null
                    || partition.partition() != record.kafkaPartition()
                    || !partition.topic().equals(record.topic())) {
                partition = new TopicPartition(record.topic(), record.kafkaPartition());
                reading = readings.get(partition);
                if (reading != null) first(partition, reading, record, positions.get(partition));
            }
            if (reading == null) continue;
            if (record.kafkaOffset() > reading.next && reading.hole < 0) reading.hole = reading.next;
            reading.next = record.kafkaOffset() + 1;
        }
    }

    private void first(TopicPartition partition, Reading reading, SinkRecord record, OffsetDocument position) {
        toCheck.add(partition);
        reading.seenNs = System.nanoTime();
        if (reading.first.get() == record) {
            reading.next = record.kafkaOffset(); // handed over once more, and looked at already
            return;
        }
        reading.first = new WeakReference<>(record);
        if (record.kafkaOffset() < position.offset())
            throw LogBounds.beyondTheEnd(
                    partition, position, "Kafka went back to offset " + record.kafkaOffset() + ", as it does then");
        boolean beginsAtPosition = reading.next <= position.offset();
        boolean isReadAgain = record.kafkaOffset() < reading.next;
        if (beginsAtPosition || isReadAgain) reading.next = Math.min(position.clear(), record.kafkaOffset());
    }

    /** Ask for what {@link #require} needs, so that it is there when it is needed. */
    void ask() {
        asked = log == null || toCheck.isEmpty() ? null : log.bounds(Set.copyOf(toCheck), false);
    }

    /** Nothing is missing of what came since the last time. Throws {@link Broken}, and {@link Unanswered}. */
    void require(Map<TopicPartition, OffsetDocument> positions) {
        if (log == null || toCheck.isEmpty()) return;
        if (asked == null) ask();
        CompletableFuture<Map<TopicPartition, LogBounds>> question = asked;
        asked = null;
        answer(question).forEach((partition, bounds) -> {
            OffsetDocument position = positions.get(partition);
            Reading reading = readings.get(partition);
            if (position == null || reading == null) return;
            if (position.topicId() != null && !position.topicId().equals(bounds.topicId()))
                throw bounds.broken(partition, position).orElseThrow();
            if (reading.hole >= 0 && bounds.start() > reading.hole) throw bounds.gap(partition, position);
            reading.hole = -1;
        });
        toCheck.clear();
    }

    /** How soon {@link #look} has something to do that should not wait; less than 0 when it has not. */
    long soonMs(Map<TopicPartition, OffsetDocument> positions) {
        boolean isDue = log != null
                && positions.entrySet().stream().anyMatch(entry -> {
                    Reading reading = readings.get(entry.getKey());
                    OffsetDocument position = entry.getValue();
                    return reading != null
                            && position.offset() > 0
                            && position.clear() == position.offset()
                            && reading.unread < position.clear();
                });
        return isDue ? TimeUnit.NANOSECONDS.toMillis(QUIET_NS) : -1;
    }

    /**
     * To be called at each poll. Looks at partitions of which nothing has come for a while, and returns up to where the log holds no record
     * behind what is applied: marks of transactions may lie there, which retention can delete without a loss. Throws {@link Broken}.
     */
    Map<TopicPartition, Long> look(Map<TopicPartition, OffsetDocument> positions) {
        long now = System.nanoTime();
        if (log == null || now - lookedNs < QUIET_NS) return Map.of();
        Set<TopicPartition> quiet = positions.keySet().stream()
                .filter(partition -> isQuiet(partition, positions.get(partition), now))
                .collect(Collectors.toSet());
        lookedNs = now;
        Map<TopicPartition, Long> clear = new HashMap<>();
        Map<TopicPartition, Long> open = new HashMap<>();
        try {
            Map<TopicPartition, LogBounds> found = quiet.isEmpty() ? Map.of() : answer(log.bounds(quiet, true));
            found.forEach((partition, bounds) -> {
                OffsetDocument position = positions.get(partition);
                bounds.broken(partition, position).ifPresent(broken -> {
                    throw broken;
                });
                long behind = bounds.stable() - position.clear();
                // a log without open transactions ends in the mark of one
                if (behind == 1 && bounds.stable() == bounds.end()) clear.put(partition, bounds.stable());
                else if (behind > 0 && readings.get(partition).unread < position.clear())
                    open.put(partition, bounds.stable());
            });
        } catch (Unanswered error) {
            return Map.of(); // the next time
        }
        if (!open.isEmpty()) clear.putAll(withoutRecords(open, positions));
        return clear;
    }

    private boolean isQuiet(TopicPartition partition, OffsetDocument position, long now) {
        Reading reading = readings.get(partition);
        return reading != null && reading.next <= position.clear() && now - reading.seenNs > QUIET_NS;
    }

    private Map<TopicPartition, Long> withoutRecords(
            Map<TopicPartition, Long> ends, Map<TopicPartition, OffsetDocument> positions) {
        Map<TopicPartition, Long> froms = new HashMap<>();
        ends.keySet()
                .forEach(partition ->
                        froms.put(partition, positions.get(partition).clear()));
        Map<TopicPartition, Boolean> found = end.hasRecords(froms);
        Map<TopicPartition, Long> clear = new HashMap<>();
        found.forEach((partition, isThere) -> {
            if (isThere) readings.get(partition).unread = froms.get(partition);
            else clear.put(partition, ends.get(partition));
        });
        return clear;
    }

    private static Map<TopicPartition, LogBounds> answer(CompletableFuture<Map<TopicPartition, LogBounds>> question) {
        try {
            return question.get(PATIENCE_S, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            throw new Unanswered(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new Unanswered(error);
        }
    }

    @Override
    public void close() {
        if (log != null) log.close();
    }
}
