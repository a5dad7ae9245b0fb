package io.towpath.sink;

import io.towpath.record.RecordHeaders;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * The writes of a batch in the order of the source's history, across partitions. Needed where documents depend on one another, as
 * they do in a unique index: what frees a value comes before what takes it.
 */
final class SourceOrder {
    private record Timed(long time, Write write) {}

    private SourceOrder() {}

    /** Within a partition the order stays as it is, whatever the times. */
    static List<Write> of(List<Write> writes) {
        Map<TopicPartition, Long> latest = new HashMap<>();
        List<Timed> timed = new ArrayList<>();
        for (Write write : writes) {
            TopicPartition partition =
                    new TopicPartition(write.record().topic(), write.record().kafkaPartition());
            timed.add(new Timed(latest.merge(partition, time(write), Math::max), write));
        }
        timed.sort(Comparator.comparingLong(Timed::time));
        return timed.stream().map(Timed::write).toList();
    }

    private static long time(Write write) {
        String[] parts =
                Writes.header(write.record(), RecordHeaders.TIME).orElse("0:0").split(":", 2);
        try {
            return (Long.parseLong(parts[0]) << 32) + Long.parseLong(parts[1]);
        } catch (RuntimeException noTime) {
            return 0; // a hint only: the partition's latest time counts
        }
    }
}
