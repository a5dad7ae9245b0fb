package io.towpath.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.junit.jupiter.api.Test;

/** Records of pipelines that were deployed without this partitioner stay in the partitions of their keys. */
class KeyPartitionerTest {
    private final KeyPartitioner partitioner = new KeyPartitioner();

    @Test
    void itChoosesAsKafkasOwnProducerDoes() {
        Random random = new Random(7);
        for (int round = 0; round < 10_000; round++) {
            byte[] key = new byte[random.nextInt(40)];
            random.nextBytes(key);
            int partitions = 1 + random.nextInt(50);
            assertEquals(BuiltInPartitioner.partitionForKey(key, partitions), partition(key, partitions));
        }
    }

    @Test
    void recordsWithoutAKeyHaveAPartition() {
        assertEquals(0, partition(null, 3));
    }

    private int partition(byte[] key, int partitions) {
        List<PartitionInfo> all = IntStream.range(0, partitions)
                .mapToObj(number -> new PartitionInfo("t", number, Node.noNode(), new Node[0], new Node[0]))
                .toList();
        Cluster cluster = new Cluster("c", List.of(), all, Set.of(), Set.of());
        return partitioner.partition("t", key, key, null, null, cluster);
    }
}
