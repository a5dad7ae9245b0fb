package io.towpath.sink;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads from Kafka what is at a position, or follows it. That Connect delivers nothing proves nothing: it delivers nothing to a paused connector either.
 * Offsets prove nothing either: the markers of transactions also have offsets.
 */
final class LogEnd {
    private static final Logger LOG = LoggerFactory.getLogger(LogEnd.class);
    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final Duration POLL = Duration.ofMillis(200);

    /** Of each partition; there may be thousands. A broker sends a larger first record all the same. */
    private static final int FETCH_BYTES = 64 << 10;

    private final Supplier<Consumer<byte[], byte[]>> consumers;

    LogEnd(Properties settings) {
        this(() -> consumer(settings));
    }

    /** @param consumers each reads what is committed, one record at a time */
    LogEnd(Supplier<Consumer<byte[], byte[]>> consumers) {
        this.consumers = consumers;
    }

    /** Settings of a consumer without a group that reads what is committed. */
    static Properties committed(Properties given) {
        Properties settings = new Properties();
        settings.putAll(given);
        settings.put("isolation.level", "read_committed");
        settings.put("allow.auto.create.topics", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return settings;
    }

    private static Consumer<byte[], byte[]> consumer(Properties given) {
        Properties settings = committed(given);
        settings.put("max.poll.records", "1"); // one is enough, and may be large
        settings.put("max.partition.fetch.bytes", Integer.toString(FETCH_BYTES));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /**
     * The broker's time of each partition's first record at or after an offset; empty where there is no record. Omits partitions without an
     * answer.
     */
    Map<TopicPartition, OptionalLong> firstTimes(Map<TopicPartition, Long> positions) {
        return times(positions, record -> true);
    }

    /** The broker's time of the record at exactly this offset, of each partition; else as {@link #firstTimes}. */
    Map<TopicPartition, OptionalLong> timesAt(Map<TopicPartition, Long> offsets) {
        return times(offsets, record -> record.offset() == offsets.get(partition(record)));
    }

    private Map<TopicPartition, OptionalLong> times(
            Map<TopicPartition, Long> offsets, Predicate<ConsumerRecord<byte[], byte[]>> counts) {
        Map<TopicPartition, OptionalLong> times = new HashMap<>();
        try (Consumer<byte[], byte[]> consumer = consumers.get()) {
            consumer.assign(offsets.keySet()); // else the client logs a warning for each end
            Map<TopicPartition, Long> open = consumer.endOffsets(offsets.keySet(), PATIENCE);
            offsets.forEach(consumer::seek);
            long last = System.nanoTime();
            boolean isSilent = true; // what is at its end already brings nothing
            while (System.nanoTime() - last < PATIENCE.toNanos()) {
                if (isSilent && drop(atEnd(consumer, open), consumer, open, times)) last = System.nanoTime();
                if (open.isEmpty()) break;
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                isSilent = records.isEmpty();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (counts.test(record)) times.put(partition(record), OptionalLong.of(record.timestamp()));
                    drop(Set.of(partition(record)), consumer, open, times);
                    last = System.nanoTime();
                }
                if (open.isEmpty()) break;
            }
        } catch (KafkaException error) {
            LOG.warn("cannot read which records of the log are not applied: {}", error.toString());
        }
        return times;
    }

    private static TopicPartition partition(ConsumerRecord<?, ?> record) {
        return new TopicPartition(record.topic(), record.partition());
    }

    private static Set<TopicPartition> atEnd(Consumer<?, ?> consumer, Map<TopicPartition, Long> open) {
        return open.entrySet().stream()
                .filter(end -> consumer.position(end.getKey(), PATIENCE) >= end.getValue())
                .map(Map.Entry::getKey)
                .collect(Collectors.toSet());
    }

    /** Reads no more of these partitions. Returns whether there are any. */
    private static boolean drop(
            Set<TopicPartition> read,
            Consumer<?, ?> consumer,
            Map<TopicPartition, Long> open,
            Map<TopicPartition, OptionalLong> times) {
        consumer.pause(read);
        open.keySet().removeAll(read);
        read.forEach(partition -> times.putIfAbsent(partition, OptionalLong.empty()));
        return !read.isEmpty();
    }
}
