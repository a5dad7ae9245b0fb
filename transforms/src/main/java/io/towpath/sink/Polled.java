package io.towpath.sink;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * What was polled and is not written yet. Polls are small, because Kafka bounds a poll by records and not by bytes, and a record can have
 * 16 MB. After a full poll more is available at once, so a transaction takes several polls; the first that is not full ends it.
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
        lastBytes = Records.bytes(poll);
        bytes += lastBytes;
    }

    /** Whether the transaction has room for another poll like the last one, and more is available. */
    boolean isMoreAvailable() {
        return lastRecords >= full && records.size() + full <= mostRecords && bytes + lastBytes <= mostBytes;
    }

    List<SinkRecord> all() {
        return List.copyOf(records);
    }

    void written() {
        records.clear();
        bytes = 0;
        lastRecords = 0;
        lastBytes = 0;
    }

    /** Connect delivers the last poll once more. */
    void handBack() {
        records.subList(records.size() - lastRecords, records.size()).clear();
        bytes -= lastBytes;
        lastRecords = 0;
        lastBytes = 0;
    }

    /** These partitions are consumed again from the destination's position, here or elsewhere. */
    void forget(Collection<TopicPartition> partitions) {
        Set<TopicPartition> forgotten = Set.copyOf(partitions);
        records.removeIf(record -> forgotten.contains(Records.partition(record)));
        bytes = Records.bytes(records);
    }
}
