package io.towpath.sink;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads from Kafka what follows a position. That Connect delivers nothing proves nothing: it delivers nothing to a paused connector either.
 * Offsets prove nothing either: the markers of transactions have offsets too.
 */
final class LogEnd {
    private static final Logger LOG = LoggerFactory.getLogger(LogEnd.class);
    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final Duration POLL = Duration.ofMillis(200);

    private final Properties settings = new Properties();

    LogEnd(Properties settings) {
        this.settings.putAll(settings);
        this.settings.put("isolation.level", "read_committed");
        this.settings.put("allow.auto.create.topics", "false");
        this.settings.put("auto.offset.reset", "earliest");
        this.settings.put("enable.auto.commit", "false");
        this.settings.put("max.poll.records", "1"); // one is enough, and may be large
    }

    /**
     * The broker's time of each partition's first record at or after an offset; empty where there is no record. Omits partitions without an
     * answer.
     */
    Map<TopicPartition, OptionalLong> firstTimes(Map<TopicPartition, Long> positions) {
        Map<TopicPartition, OptionalLong> times = new HashMap<>();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            Map<TopicPartition, Long> open = consumer.endOffsets(positions.keySet(), PATIENCE);
            consumer.assign(open.keySet());
            positions.forEach(consumer::seek);
            for (long until = System.nanoTime() + PATIENCE.toNanos(); System.nanoTime() < until; ) {
                for (TopicPartition partition : Map.copyOf(open).keySet()) {
                    if (consumer.position(partition, PATIENCE) < open.get(partition)) continue;
                    times.putIfAbsent(partition, OptionalLong.empty());
                    open.remove(partition);
                }
                if (open.isEmpty()) break;
                consumer.assign(open.keySet());
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    times.put(partition, OptionalLong.of(record.timestamp()));
                    open.remove(partition);
                }
            }
        } catch (KafkaException error) {
            LOG.warn("cannot read which records of the log are not applied: {}", error.toString());
        }
        return times;
    }
}
