package io.towpath.sink;

import io.towpath.record.CanonicalKey;
import io.towpath.record.Chunks;
import io.towpath.record.ContractException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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
    /** A chunk is not older than the record by more: both are in one transaction, and brokers allow none of more than 15 minutes. */
    private static final long LONGEST_MS = Duration.ofMinutes(20).toMillis();
    /** Bytes that are read to find the chunks of a value, besides a multiple of its own. */
    private static final long MOST_BYTES = 64 << 20;

    private static final int MOST_TIMES = 16;

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
        return new KafkaConsumer<>(LogEnd.committed(given), new ByteArrayDeserializer(), new ByteArrayDeserializer());
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
     * The same records: chunks without their data, and values in place of what names their chunks. A record whose value cannot be put
     * together keeps what it has. Throws {@link RetriableException} when Kafka does not answer.
     */
    List<SinkRecord> joined(List<SinkRecord> records) {
        if (records.stream().noneMatch(record -> isChunk(record) || isInChunks(record))) return records;
        List<SinkRecord> joined = new ArrayList<>(records.size());
        for (SinkRecord record : records) {
            if (isChunk(record)) joined.add(new Joined(record, null, false));
            else joined.add(isInChunks(record) ? joined(record) : record);
        }
        return joined;
    }

    private SinkRecord joined(SinkRecord record) {
        if (consumers == null || !(record.key() instanceof byte[] key)) return record;
        try {
            if (!CanonicalKey.isKey(key)) return record;
            Chunks chunks = Chunks.decode((byte[]) record.value());
            Search search = new Search(record, chunks, key);
            if (search.isComplete()) return new Joined(record, chunks.join(search.parts()), false);
            return search.isExhausted() ? new Joined(record, (byte[]) record.value(), true) : record;
        } catch (ContractException error) {
            return record; // its value is no change, and becomes a dead letter
        } catch (KafkaException error) {
            throw new RetriableException("cannot read the chunks of a record: " + error.getMessage(), error);
        }
    }

    /** Reads backwards from a record to all chunks that it names: each time as many offsets as before, and those before them. */
    private final class Search {
        private final TopicPartition partition;
        private final List<ByteBuffer> keys = new ArrayList<>();
        private final Map<ByteBuffer, byte[]> found = new HashMap<>();
        private final long first;
        private final boolean isHeld;
        private final long earliestMs;
        private boolean isBeforeTransaction;
        private long from;
        private long bytes;

        Search(SinkRecord record, Chunks chunks, byte[] key) {
            this.partition = Records.partition(record);
            this.earliestMs = record.timestamp() == null ? Long.MIN_VALUE : record.timestamp() - LONGEST_MS;
            long end = record.kafkaOffset();
            for (int number = 0; number < chunks.count(); number++) keys.add(ByteBuffer.wrap(chunks.key(key, number)));
            if (consumer == null) consumer = consumers.get();
            List<TopicPartition> one = List.of(partition);
            first = consumer.beginningOffsets(one, PATIENCE).get(partition);
            // else it was cut short, which the sink notices before it commits
            isHeld = first <= end - keys.size()
                    && consumer.endOffsets(one, PATIENCE).get(partition) > end;
            from = end;
            bytes = MOST_BYTES + (long) MOST_TIMES * chunks.size();
            for (long back = keys.size(); isHeld && !isComplete() && !isAtBeginning() && bytes > 0; back *= 2) {
                long to = from;
                from = Math.max(first, end - back);
                read(from, to);
            }
        }

        boolean isComplete() {
            return found.size() == keys.size();
        }

        /** Whether the log has no more of the chunks, although nothing was cut off from it here. */
        boolean isExhausted() {
            return isHeld && isAtBeginning() && bytes > 0;
        }

        /** Whether no chunk can be further back: Towpath's other tasks may have written any number of records in between. */
        private boolean isAtBeginning() {
            return from <= first || isBeforeTransaction;
        }

        List<byte[]> parts() {
            return keys.stream().map(found::get).toList();
        }

        private void read(long start, long to) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, start);
            long last = System.nanoTime();
            while (!isComplete() && bytes > 0 && consumer.position(partition, PATIENCE) < to) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    last = System.nanoTime();
                    if (record.offset() < to) take(record);
                }
                if (System.nanoTime() - last > PATIENCE.toNanos())
                    throw new KafkaException("no answer about %s in %d s".formatted(partition, PATIENCE.toSeconds()));
            }
            consumer.unsubscribe(); // else the client keeps what it has fetched beyond
        }

        private void take(ConsumerRecord<byte[], byte[]> record) {
            bytes -= Math.max(0, record.serializedKeySize()) + Math.max(0, record.serializedValueSize());
            isBeforeTransaction |= record.timestamp() < earliestMs;
            if (record.key() == null || record.value() == null || !Chunks.isKey(record.key())) return;
            ByteBuffer key = ByteBuffer.wrap(record.key());
            if (keys.contains(key)) found.put(key, record.value());
        }
    }

    @Override
    public void close() {
        if (consumer != null) consumer.close();
    }

    /** A record with another value, or one of which is known that its chunks are gone. */
    private static final class Joined extends RecordCopy {
        private final SinkRecord original;
        private final boolean isMissing;

        Joined(SinkRecord original, byte[] value, boolean isMissing) {
            super(original, value, original.headers());
            this.original = value == null ? null : original;
            this.isMissing = isMissing;
        }
    }

    /** Whether the log has no more all chunks of the record's value, although it holds what is around them. */
    static boolean isMissing(SinkRecord record) {
        return record instanceof Joined joined && joined.isMissing;
    }

    /** The record as it is in the log; it alone fits into the topic of dead letters. */
    static SinkRecord original(SinkRecord record) {
        return record instanceof Joined joined && joined.original != null ? joined.original : record;
    }
}
