package io.towpath.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.record.BsonBytes;
import io.towpath.record.Chunks;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
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
    void aChunkGoesToThePartitionOfItsDocument() {
        for (int id = 0; id < 100; id++) {
            byte[] document = BsonBytes.of(new BsonDocument("_id", new BsonInt64(id)));
            Chunks chunks = new Chunks(new byte[Chunks.ID_BYTES], 9, 90, true);
            for (int number = 0; number < 9; number++)
                assertEquals(partition(document, 7), partition(chunks.key(document, number), 7));
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
