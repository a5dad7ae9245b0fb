package io.towpath.source.reread;

import io.towpath.record.ContractException;
import io.towpath.record.TopicNames;
import io.towpath.source.progress.Progress;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Queue;
import java.util.function.Predicate;
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
    private static final int MOST_WAITING = 16;
    /** Letters of a line about a request, which may have an {@code _id} of 16 MB. */
    private static final int MOST_LOGGED = 1_000;

    private final Consumer<byte[], byte[]> consumer;
    private final Predicate<String> selection;
    private final Progress progress;
    private final Queue<RereadRequest> waiting = new ArrayDeque<>();
    private long read;

    /** @param next offset of the first request to read */
    RequestLog(
            Consumer<byte[], byte[]> consumer,
            String topic,
            long next,
            Predicate<String> selection,
            Progress progress) {
        this.consumer = consumer;
        this.selection = selection;
        this.progress = progress;
        this.read = next;
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
        properties.put("max.poll.records", Integer.toString(MOST_WAITING));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The first request that is not answered, if there is one. Does not wait for one. */
    Optional<RereadRequest> first() {
        if (waiting.isEmpty()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ZERO)) take(record);
        }
        return Optional.ofNullable(waiting.peek());
    }

    private void take(ConsumerRecord<byte[], byte[]> record) {
        read = record.offset() + 1;
        try {
            RereadRequest request = RereadRequest.of(record.offset(), record.value());
            if (!request.closes().isEmpty()) {
                waiting.add(request);
                return;
            }
            if (!selection.test(request.namespace())) return;
            TopicNames.of(progress.name(), request.namespace());
            List<byte[]> readable = request.keys().stream()
                    .filter(key -> isReadable(request, key))
                    .toList();
            if (!readable.isEmpty())
                waiting.add(new RereadRequest(request.offset(), request.namespace(), readable, ""));
        } catch (DataException | ContractException error) {
            skip(error.getMessage());
        }
    }

    private boolean isReadable(RereadRequest request, byte[] key) {
        Optional<String> oddity = RereadRequest.oddity(key);
        oddity.ifPresent(why -> skip("request %d: %s of %s cannot be re-read: %s"
                .formatted(request.offset(), new RawBsonDocument(key), request.namespace(), why)));
        return oddity.isEmpty();
    }

    /** A request, or one of its documents, that is never answered. */
    void skip(String why) {
        progress.metrics().requestSkipped();
        LOGGER.error("TWP-REQUEST: skipped: {}", why.substring(0, Math.min(why.length(), MOST_LOGGED)));
    }

    /** The offset up to which there is nothing to answer. */
    long skipped() {
        return waiting.isEmpty() ? read : waiting.peek().offset();
    }

    void answered() {
        waiting.remove();
    }

    @Override
    public void close() {
        consumer.close();
    }
}
