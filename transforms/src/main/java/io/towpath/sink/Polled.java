package io.towpath.sink;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * What was polled and is not written yet. Polls are small, because a poll is bounded by records and not by bytes, and records can be of
 * 16 MB; a full one tells that more is there at once, so that a transaction takes several. The first that is not full ends it.
 */
final class Polled {
    private final int full;
    private final int mostRecords;
    private final long mostBytes;
    private final List<SinkRecord> records = new ArrayList<>();
    private long bytes;
    private int lastRecords;
    private long lastBytes;

    Polled(int full, int mostRecords, long mostBytes) {
        this.full = full;
        this.mostRecords = mostRecords;
        this.mostBytes = mostBytes;
    }

    void add(Collection<SinkRecord> poll) {
        records.addAll(poll);
        lastRecords = poll.size();
        lastBytes = SinkMetrics.size(poll);
        bytes += lastBytes;
    }

    /** Whether a transaction will take another poll like the last one, and one is there. */
    boolean isMoreThere() {
        return lastRecords >= full && records.size() + full <= mostRecords && bytes + lastBytes <= mostBytes;
    }

    List<SinkRecord> all() {
        return List.copyOf(records);
    }

    void written() {
        records.clear();
        bytes = 0;
    }

    /** Connect hands the last poll over once more. */
    void handBack() {
        records.subList(records.size() - lastRecords, records.size()).clear();
        bytes -= lastBytes;
        lastRecords = 0;
        lastBytes = 0;
    }

    /** These partitions are read again from where the destination is, here or elsewhere. */
    void forget(Collection<TopicPartition> partitions) {
        Set<TopicPartition> gone = Set.copyOf(partitions);
        records.removeIf(record -> gone.contains(new TopicPartition(record.topic(), record.kafkaPartition())));
        bytes = SinkMetrics.size(records);
    }
}
