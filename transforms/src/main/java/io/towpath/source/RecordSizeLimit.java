package io.towpath.source;

import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.record.RecordHeaders;
import io.towpath.source.progress.SourceMetrics;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Turns records that are larger than their topic takes into dead letters, with the document's key and the reason: Kafka would refuse them
 * again and again, and hold up everything behind them. {@code repair --dead-letters} re-reads the documents.
 */
final class RecordSizeLimit {
    private static final Logger LOGGER = LoggerFactory.getLogger(RecordSizeLimit.class);
    /** Smaller records are not checked: no sensible topic has a limit below. */
    private static final int SMALL = 64 << 10;
    /** Of a batch with one record, besides the record's bytes: its header (61 bytes), lengths, and the headers of a dead letter. */
    private static final int OVERHEAD = 8 << 10;

    private final SourceSettings settings;
    private final SourceMetrics metrics;
    private final LogTopics topics;

    RecordSizeLimit(SourceSettings settings, SourceMetrics metrics, LogTopics topics) {
        this.settings = settings;
        this.metrics = metrics;
        this.topics = topics;
    }

    /** The same record, or a dead letter in place of one that is too large. */
    SourceRecord applyTo(SourceRecord record) throws InterruptedException {
        String reason = reason(record);
        return reason.isEmpty() ? record : letter(record, reason);
    }

    /** Why a record cannot be written; empty when it can. */
    private String reason(SourceRecord record) throws InterruptedException {
        if (!settings.rereads().areUsed()
                || !(record.key() instanceof byte[] key)
                || length(key) + length(record.value()) < SMALL) return "";
        byte[] value = (byte[]) record.value();
        int headers = length(record.headers());
        int size = OVERHEAD + headers + length(key) + length(value);
        if (size > settings.largestRequest()) {
            return "the record has %,d bytes, and the source connector's producer sends %,d at most (max.request.size)"
                    .formatted(size, settings.largestRequest());
        }
        LogTopics.Limit limit = topics.limit(record.topic());
        if (size <= limit.bytes()) return "";
        int sent = packed(settings.compression(), key, value);
        int stored = limit.compression()
                .map(compression -> packed(compression, key, value))
                .orElse(sent);
        int packed = OVERHEAD + headers + Math.max(sent, stored);
        if (packed <= limit.bytes()) return "";
        return "the record has %,d bytes, with room for the headers of a dead letter, and the topic %s takes %,d at most (max.message.bytes): raise that, then `towpath repair PIPELINE --dead-letters`"
                .formatted(packed, record.topic(), limit.bytes());
    }

    /** The size after compression at the default level. */
    static int packed(String compression, byte[] key, byte[] value) {
        ByteBufferOutputStream packed = new ByteBufferOutputStream(1 << 20);
        try (OutputStream out = Compression.of(compression).build().wrapForOutput(packed, (byte) 2)) {
            out.write(key);
            if (value != null) out.write(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return packed.position();
    }

    private static int length(Headers headers) {
        int bytes = 0;
        for (Header header : headers) bytes += header.key().length() + length(header.value());
        return bytes;
    }

    private static int length(Object bytes) {
        return bytes instanceof byte[] array ? array.length : 0;
    }

    private SourceRecord letter(SourceRecord record, String reason) {
        byte[] key = (byte[]) record.key();
        String namespace = record.topic().substring(settings.name().length() + 1);
        String id = new RawBsonDocument(key).toJson();
        if (settings.deadLettersTopic().isEmpty()) {
            throw new ConnectException("%s %s cannot be written to the log: %s".formatted(namespace, id, reason));
        }
        LOGGER.error("{} {} becomes a dead letter: {}", namespace, id, reason);
        metrics.oversized();
        Headers headers = record.headers().duplicate();
        TextHeaders.addDeadLetter(headers, record.topic(), -1, place(record), namespace, 0, reason);
        return new LogRecord(
                record.sourcePartition(), record.sourceOffset(), settings.deadLettersTopic(), 0, key, key, headers);
    }

    /** A number for a document and its cluster time, in place of an offset: it distinguishes dead letters. */
    private static long place(SourceRecord record) {
        int time = TextHeaders.read(record, RecordHeaders.Part.TIME).orElse("").hashCode();
        return (Integer.toUnsignedLong(Arrays.hashCode((byte[]) record.key())) << 31) ^ Integer.toUnsignedLong(time);
    }
}
