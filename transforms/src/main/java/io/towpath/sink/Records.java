package io.towpath.sink;

import java.util.Collection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/** What Connect's records do not report themselves. */
final class Records {
    private Records() {}

    static TopicPartition partition(SinkRecord record) {
        return new TopicPartition(record.topic(), record.kafkaPartition());
    }

    static boolean areOfOnePartition(SinkRecord left, SinkRecord right) {
        return left.kafkaPartition().equals(right.kafkaPartition())
                && left.topic().equals(right.topic());
    }

    /** The size of their keys and values. */
    static long bytes(Collection<SinkRecord> records) {
        return records.stream().mapToLong(Records::bytes).sum();
    }

    static long bytes(SinkRecord record) {
        return (record.key() instanceof byte[] key ? key.length : 0)
                + (record.value() instanceof byte[] value ? value.length : 0);
    }
}
