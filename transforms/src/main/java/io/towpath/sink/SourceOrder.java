package io.towpath.sink;

import io.towpath.connector.TextHeaders;
import io.towpath.record.ClusterTime;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * The writes of a batch in the order of the source's history, across partitions. Needed where documents depend on one another, as in a
 * unique index: the write that frees a value comes before the one that takes it.
 */
final class SourceOrder {
    private static final ClusterTime NONE = ClusterTime.ofBits(0);

    private record Timed(ClusterTime time, Write write) {}

    private SourceOrder() {}

    /** Keeps the order within a partition, whatever the times. */
    static List<Write> of(List<Write> writes) {
        Map<TopicPartition, ClusterTime> latest = new HashMap<>();
        List<Timed> timed = new ArrayList<>();
        for (Write write : writes) {
            TopicPartition partition = Records.partition(write.record());
            timed.add(new Timed(latest.merge(partition, time(write), SourceOrder::later), write));
        }
        timed.sort(Comparator.comparing(Timed::time));
        return timed.stream().map(Timed::write).toList();
    }

    private static ClusterTime later(ClusterTime left, ClusterTime right) {
        return left.isAfter(right) ? left : right;
    }

    private static ClusterTime time(Write write) {
        try {
            return TextHeaders.read(write.record(), RecordHeaders.TIME)
                    .map(ClusterTime::parse)
                    .orElse(NONE);
        } catch (ContractException noTime) {
            return NONE; // a hint only: the partition's latest time counts
        }
    }
}
