package io.towpath.sink;

import io.towpath.record.Chunks;
import io.towpath.record.ContractException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Puts values that are in {@link Chunks} together. It reads the chunks back from the record that names them, so the sink's position may pass
 * chunks whose document it has not read yet, and nothing has to be remembered between two polls.
 */
final class ChunkedRecords implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final Duration POLL = Duration.ofMillis(200);
    /** Offsets that are searched at a time, beyond those directly before the record. Other tasks of the source write in between. */
    private static final long STEP = 10_000;
    /** Offsets before the record that are searched: a chunk that is further away is missing. */
    private static final long FARTHEST = 100_000;

    private final Supplier<Consumer<byte[], byte[]>> consumers;
    private Consumer<byte[], byte[]> consumer;

    /** @param settings to read the log with; without Kafka's address, no chunk is found */
    static ChunkedRecords of(Properties settings) {
        return new ChunkedRecords(
                settings.getProperty("bootstrap.servers", "").isEmpty() ? null : () -> consumer(settings));
    }

    /** @param consumers each reads what is committed; null where Kafka cannot be read */
    ChunkedRecords(Supplier<Consumer<byte[], byte[]>> consumers) {
        this.consumers = consumers;
    }

    private static Consumer<byte[], byte[]> consumer(Properties given) {
        Properties settings = new Properties();
        settings.putAll(given);
        settings.put("isolation.level", "read_committed");
        settings.put("allow.auto.create.topics", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Whether this is a chunk, which is no change itself. */
    static boolean isChunk(SinkRecord record) {
        return record.key() instanceof byte[] key && Chunks.isKey(key);
    }

    /** Whether the record's value is in chunks, which are not put together. */
    static boolean isInChunks(SinkRecord record) {
        return record.value() instanceof byte[] value && Chunks.areNamedIn(value);
    }

    /**
     * The same records: chunks without their data, and values in place of what names their chunks. A record of which a chunk is missing stays
     * as it is. Throws {@link RetriableException} when Kafka does not answer.
     */
    List<SinkRecord> joined(List<SinkRecord> records) {
        if (records.stream().noneMatch(record -> isChunk(record) || isInChunks(record))) return records;
        List<SinkRecord> joined = new ArrayList<>(records.size());
        for (SinkRecord record : records) {
            if (isChunk(record)) joined.add(new Joined(record, null));
            else if (isInChunks(record))
                joined.add(value(record)
                        .<SinkRecord>map(value -> new Joined(record, value))
                        .orElse(record));
            else joined.add(record);
        }
        return joined;
    }

    private Optional<byte[]> value(SinkRecord record) {
        try {
            Chunks chunks = Chunks.decode((byte[]) record.value());
            Optional<List<byte[]>> parts = consumers == null ? Optional.empty() : read(record, chunks);
            return parts.map(chunks::join);
        } catch (ContractException error) {
            return Optional.empty(); // its value is no change, and becomes a dead letter
        } catch (KafkaException error) {
            throw new RetriableException("cannot read the chunks of a record: " + error.getMessage(), error);
        }
    }

    /** The chunks in their order; empty if one is missing. */
    private Optional<List<byte[]>> read(SinkRecord record, Chunks chunks) {
        List<ByteBuffer> keys = new ArrayList<>();
        for (int number = 0; number < chunks.count(); number++)
            keys.add(ByteBuffer.wrap(chunks.key((byte[]) record.key(), number)));
        Map<ByteBuffer, byte[]> found = new HashMap<>();
        keys.forEach(key -> found.put(key, null));
        TopicPartition partition = Records.partition(record);
        if (consumer == null) consumer = consumers.get();
        long end = record.kafkaOffset();
        long first = consumer.beginningOffsets(List.of(partition), PATIENCE).get(partition);
        long farthest = Math.max(first, end - FARTHEST);
        long from = Math.max(farthest, end - chunks.count());
        read(partition, from, end, found);
        while (found.containsValue(null) && from > farthest) {
            long to = from;
            from = Math.max(farthest, to - STEP);
            read(partition, from, to, found);
        }
        return found.containsValue(null)
                ? Optional.empty()
                : Optional.of(keys.stream().map(found::get).toList());
    }

    /** Reads those records from an offset to before another whose keys are in the map, into it. */
    private void read(TopicPartition partition, long from, long to, Map<ByteBuffer, byte[]> into) {
        consumer.assign(List.of(partition));
        consumer.seek(partition, from);
        long last = System.nanoTime();
        for (long position = from; position < to; position = consumer.position(partition, PATIENCE)) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                last = System.nanoTime();
                if (record.offset() < to && record.key() != null && record.value() != null)
                    into.replace(ByteBuffer.wrap(record.key()), record.value());
            }
            if (System.nanoTime() - last > PATIENCE.toNanos())
                throw new KafkaException("no answer about %s in %d s".formatted(partition, PATIENCE.toSeconds()));
        }
        consumer.unsubscribe(); // else the client keeps what it has fetched beyond
    }

    @Override
    public void close() {
        if (consumer != null) consumer.close();
    }

    /** A record with another value. */
    private static final class Joined extends SinkRecord {
        private final SinkRecord original;

        Joined(SinkRecord original, byte[] value) {
            super(
                    original.topic(),
                    original.kafkaPartition(),
                    original.keySchema(),
                    original.key(),
                    original.valueSchema(),
                    value,
                    original.kafkaOffset(),
                    original.timestamp(),
                    original.timestampType(),
                    original.headers());
            this.original = value == null ? null : original;
        }

        @Override
        public boolean equals(Object other) {
            return this == other;
        }

        @Override
        public int hashCode() {
            return System.identityHashCode(this);
        }
    }

    /** The record as it is in the log; it alone fits into the topic of dead letters. */
    static SinkRecord original(SinkRecord record) {
        return record instanceof Joined joined && joined.original != null ? joined.original : record;
    }
}
