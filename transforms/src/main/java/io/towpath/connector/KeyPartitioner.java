package io.towpath.connector;

import io.towpath.record.Chunks;
import java.util.Map;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.utils.Utils;

/**
 * Chooses a record's partition by its key, as Kafka's producer does unless it is told otherwise. A connector that names this class is
 * independent of the worker's own settings ({@code producer.partitioner.class}, {@code producer.partitioner.ignore.keys}), which it
 * cannot see: they would write the changes of one document, and the offsets of the connector, to partitions without a common order. A chunk
 * goes to the partition of its document.
 */
public final class KeyPartitioner implements Partitioner {
    /** For records without a key, which are no changes. */
    private static final int ANY = 0;

    @Override
    public void configure(Map<String, ?> settings) {
        // there is nothing to choose
    }

    @Override
    public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        if (keyBytes == null) return ANY;
        byte[] chosen = Chunks.isKey(keyBytes) ? Chunks.documentKey(keyBytes) : keyBytes;
        return Utils.toPositive(Utils.murmur2(chosen))
                % cluster.partitionsForTopic(topic).size();
    }

    @Override
    public void close() {
        // it holds nothing
    }
}
