package io.towpath.source.reread;

import io.towpath.record.ContractException;
import io.towpath.record.TopicNames;
import io.towpath.source.progress.Progress;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Queue;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.errors.DataException;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The request topic, read in order. Skips requests for namespaces that another connector captures. */
final class RequestLog implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(RequestLog.class);
    private static final int MOST_POLLED = 16;
    /** Letters of a line about a request, which may have an {@code _id} of 16 MB. */
    private static final int MOST_LOGGED = 1_000;

    private final Consumer<byte[], byte[]> consumer;
    private final Predicate<String> selection;
    private final Progress progress;
    private final Queue<ConsumerRecord<byte[], byte[]>> polled = new ArrayDeque<>();
    /** Null when there is none. */
    private RereadRequest first;

    private long next;
    private long skipped;
    /** Whether the request at {@link #next}, or some of its documents, is never answered. */
    private boolean isSkipped;

    /**
     * @param next offset of the first request to read
     * @param skipped how many requests before it were skipped
     */
    RequestLog(
            Consumer<byte[], byte[]> consumer,
            String topic,
            long next,
            long skipped,
            Predicate<String> selection,
            Progress progress) {
        this.consumer = consumer;
        this.selection = selection;
        this.progress = progress;
        this.next = next;
        this.skipped = skipped;
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seek(partition, next);
    }

    static Consumer<byte[], byte[]> consumer(Properties settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.put("isolation.level", "read_committed");
        properties.put("allow.auto.create.topics", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", Integer.toString(MOST_POLLED));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The first request that is not answered, if there is one. Does not wait for one. */
    Optional<RereadRequest> first() {
        if (first == null && polled.isEmpty()) consumer.poll(Duration.ZERO).forEach(polled::add);
        while (first == null && !polled.isEmpty()) {
            ConsumerRecord<byte[], byte[]> record = polled.remove();
            next = record.offset();
            first = take(record).orElse(null);
            if (first == null) answered();
        }
        return Optional.ofNullable(first);
    }

    /** What is to be answered of a request, if anything. */
    private Optional<RereadRequest> take(ConsumerRecord<byte[], byte[]> record) {
        try {
            RereadRequest request = RereadRequest.of(record.offset(), record.value());
            if (!request.closes().isEmpty()) return Optional.of(request);
            if (!selection.test(request.namespace())) return Optional.empty();
            TopicNames.of(progress.name(), request.namespace());
            return readable(request);
        } catch (DataException | ContractException error) {
            skip(error.getMessage());
            return Optional.empty();
        }
    }

    /** The request without the documents that cannot be read; empty when none is left. */
    private Optional<RereadRequest> readable(RereadRequest request) {
        Map<Boolean, List<byte[]>> keys = request.keys().stream()
                .collect(Collectors.partitioningBy(
                        key -> RereadRequest.oddity(key).isEmpty()));
        List<byte[]> odd = keys.get(false);
        if (odd.isEmpty()) return Optional.of(request);
        skip("request %d: %d of its %d documents of %s cannot be re-read: %s: %s"
                .formatted(
                        request.offset(),
                        odd.size(),
                        request.keys().size(),
                        request.namespace(),
                        RereadRequest.oddity(odd.get(0)).orElseThrow(),
                        new RawBsonDocument(odd.get(0))));
        List<byte[]> readable = keys.get(true);
        return readable.isEmpty()
                ? Optional.empty()
                : Optional.of(new RereadRequest(request.offset(), request.namespace(), readable, ""));
    }

    /** The request at {@link #next}, or some of its documents, is never answered. */
    void skip(String why) {
        isSkipped = true;
        LOGGER.error("TWP-REQUEST: skipped: {}", why.substring(0, Math.min(why.length(), MOST_LOGGED)));
    }

    /** The offset up to which there is nothing to answer. */
    long next() {
        return next;
    }

    /** How many requests before {@link #next} were skipped, as a whole or some of their documents. */
    long skipped() {
        return skipped;
    }

    /** There is nothing more to answer of the first request. */
    void answered() {
        if (isSkipped) {
            skipped++;
            progress.metrics().requestSkipped();
        }
        isSkipped = false;
        first = null;
        next++;
    }

    @Override
    public void close() {
        consumer.close();
    }
}
