package io.towpath.sink;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Hands a log to a task in the order that Connect's own worker does (WorkerSinkTask): the consumer seeks before the next poll, a batch
 * that failed comes again with nothing new beside it, and a partition that is revoked takes its records out of that batch. Partitions come
 * and go in a poll, before which the consumer has sought.
 */
final class Worker {
    private final TestTask sink;
    private final int pollRecords;
    private final Map<TopicPartition, List<SinkRecord>> log = new LinkedHashMap<>();
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private List<SinkRecord> batch = new ArrayList<>();
    private boolean redelivers;
    private String failure = "";

    Worker(TestTask sink, int pollRecords) {
        this.sink = sink;
        this.pollRecords = pollRecords;
    }

    /** The log of a partition continues with these. */
    void append(TopicPartition partition, List<SinkRecord> records) {
        log.computeIfAbsent(partition, unused -> new ArrayList<>()).addAll(records);
    }

    void assign(Collection<TopicPartition> partitions) {
        rewind();
        partitions.forEach(partition -> positions.put(partition, 0L));
        sink.context.paused.retainAll(positions.keySet());
        redelivers = redelivers && !batch.isEmpty();
        sink.task.open(partitions);
        rewind();
    }

    void revoke(Collection<TopicPartition> partitions) {
        rewind();
        sink.task.close(partitions);
        positions.keySet().removeAll(partitions);
        batch.removeIf(record -> partitions.contains(TestTask.partition(record)));
    }

    Set<TopicPartition> assigned() {
        return Set.copyOf(positions.keySet());
    }

    @Override
    public String toString() {
        return "positions %s, paused %s, batch again: %s, after %s"
                .formatted(positions, sink.context.paused, redelivers, failure);
    }

    /** Returns whether the task took the batch. */
    boolean iterate() {
        rewind();
        if (!redelivers) batch = poll();
        try {
            sink.task.put(new ArrayList<>(batch));
            batch.clear();
            redelivers = false;
        } catch (RetriableException again) {
            redelivers = true;
            failure = again.toString();
        }
        return !redelivers;
    }

    private void rewind() {
        sink.context.seeks.forEach((partition, offset) -> {
            if (positions.replace(partition, offset) == null)
                throw new IllegalStateException("No current assignment for partition " + partition);
        });
        sink.context.seeks.clear();
    }

    /** One record of each partition in turn. */
    private List<SinkRecord> poll() {
        List<SinkRecord> polled = new ArrayList<>();
        for (int before = -1; before < polled.size() && polled.size() < pollRecords; ) {
            before = polled.size();
            positions.replaceAll((partition, from) -> {
                if (polled.size() == pollRecords || sink.context.paused.contains(partition)) return from;
                SinkRecord next = log.getOrDefault(partition, List.of()).stream()
                        .filter(record -> record.kafkaOffset() >= from)
                        .findFirst()
                        .orElse(null);
                if (next == null) return from;
                polled.add(next);
                return next.kafkaOffset() + 1;
            });
        }
        return polled;
    }

    /** Until all of the log is applied; an error that lasts makes the test end by its own limit. */
    void drain() {
        int idle = 0;
        while (idle < 2) {
            boolean ended = positions.entrySet().stream().allMatch(entry -> end(entry.getKey()) <= entry.getValue());
            idle = iterate() && ended && sink.context.seeks.isEmpty() ? idle + 1 : 0;
        }
    }

    private long end(TopicPartition partition) {
        List<SinkRecord> records = log.getOrDefault(partition, List.of());
        return records.isEmpty() ? 0 : records.get(records.size() - 1).kafkaOffset() + 1;
    }
}
