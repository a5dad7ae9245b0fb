package io.towpath.source;

import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.record.Chunks;
import io.towpath.record.RecordHeaders;
import io.towpath.source.progress.SourceMetrics;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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
 * Cuts values that are larger than their topic takes into {@link Chunks}: Kafka would refuse them again and again, and hold up everything
 * behind them. A document whose {@code _id} alone is too large becomes a dead letter, with its key and the reason. Without a topic of dead
 * letters, the sink is not MongoSink, which alone knows chunks: then the task stops.
 */
final class RecordSizeLimit {
    private static final Logger LOGGER = LoggerFactory.getLogger(RecordSizeLimit.class);
    /** Smaller records are not checked: no sensible topic has a limit below. */
    private static final int SMALL = 64 << 10;
    /** Of a batch with one record, besides the record's bytes: its header (61 bytes), lengths, and the headers of a dead letter. */
    private static final int OVERHEAD = 8 << 10;

    /** The bytes of a value that a chunk has at least: with fewer, the key is most of it. */
    private static final int LEAST = SMALL;
    /** Compression makes what cannot be compressed larger by less than a part in so many. */
    private static final int EXPANSION = 64;

    private final SecureRandom random = new SecureRandom();
    private final SourceSettings settings;
    private final SourceMetrics metrics;
    private final LogTopics topics;

    RecordSizeLimit(SourceSettings settings, SourceMetrics metrics, LogTopics topics) {
        this.settings = settings;
        this.metrics = metrics;
        this.topics = topics;
    }

    /**
     * Adds the record alone, or the chunks of its value and a record that names them, or a dead letter in its place. Returns false for a dead
     * letter.
     */
    boolean add(SourceRecord record, List<SourceRecord> into) throws InterruptedException {
        if (!settings.rereads().areUsed()
                || !(record.key() instanceof byte[] key)
                || length(key) + length(record.value()) < SMALL) return into.add(record);
        byte[] value = (byte[]) record.value();
        int largest = settings.largestRequest();
        int size = OVERHEAD + length(record.headers()) + length(key) + length(value);
        if (size > largest && isAlone(record, key, largest)) return addLetter(record, key, largest, into);
        LogTopics.Limit limit = topics.limit(record.topic());
        if (size <= largest && isTaken(record, size, limit)) return into.add(record);
        int most = Math.min(limit.bytes(), largest);
        return value == null
                        || isAlone(record, key, most)
                        || settings.deadLettersTopic().isEmpty()
                ? addLetter(record, key, most, into)
                : into.addAll(chunks(record, key, value, most));
    }

    /** Whether the topic takes the record, as it is sent and as it is stored. */
    private boolean isTaken(SourceRecord record, int size, LogTopics.Limit limit) {
        if (size <= limit.bytes()) return true;
        byte[] key = (byte[]) record.key();
        byte[] value = (byte[]) record.value();
        int sent = packed(settings.compression(), key, value);
        int stored = limit.compression()
                .map(compression -> packed(compression, key, value))
                .orElse(sent);
        return OVERHEAD + length(record.headers()) + Math.max(sent, stored) <= limit.bytes();
    }

    /** Whether a record of at most so many bytes has no room for a part of a value beside the key. */
    private boolean isAlone(SourceRecord record, byte[] key, int most) {
        return Chunks.room(key, room(record, most)) < LEAST;
    }

    /** The bytes that key and value of a chunk may have. */
    private static int room(SourceRecord record, int most) {
        return most - OVERHEAD - length(record.headers()) - most / EXPANSION;
    }

    private List<SourceRecord> chunks(SourceRecord record, byte[] key, byte[] value, int most) {
        byte[] id = new byte[Chunks.ID_BYTES];
        random.nextBytes(id);
        Chunks chunks = Chunks.of(id, key, value, room(record, most));
        List<SourceRecord> records = new ArrayList<>();
        for (int number = 0; number < chunks.count(); number++)
            records.add(new LogRecord(
                    record.sourcePartition(),
                    record.sourceOffset(),
                    record.topic(),
                    record.kafkaPartition(),
                    chunks.key(key, number),
                    chunks.chunk(value, number),
                    record.headers()));
        records.add(LogRecord.with(record, chunks.value()));
        return records;
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

    private boolean addLetter(SourceRecord record, byte[] key, int most, List<SourceRecord> into) {
        into.add(letter(record, key, most));
        return false;
    }

    private SourceRecord letter(SourceRecord record, byte[] key, int most) {
        String reason =
                "its _id has %,d bytes, its record %,d, and %,d are the most (max.message.bytes, max.request.size)"
                        .formatted(key.length, length(record.key()) + length(record.value()), most);
        String namespace = record.topic().substring(settings.name().length() + 1);
        String id = new RawBsonDocument(key).toJson();
        if (settings.deadLettersTopic().isEmpty()) {
            throw new ConnectException(
                    "%s %s cannot be written to the log: %s: raise that, then restart the task, or use mode = \"exactly-once\""
                            .formatted(namespace, id, reason));
        }
        LOGGER.error("{} {} becomes a dead letter: {}", namespace, id, reason);
        metrics.oversized();
        Headers headers = record.headers().duplicate();
        TextHeaders.addDeadLetter(
                headers,
                record.topic(),
                -1,
                place(record),
                namespace,
                0,
                reason + ": raise that, then `towpath repair PIPELINE --dead-letters`");
        return new LogRecord(
                record.sourcePartition(), record.sourceOffset(), settings.deadLettersTopic(), 0, key, key, headers);
    }

    /** A number for a document and its cluster time, in place of an offset: it distinguishes dead letters. */
    private static long place(SourceRecord record) {
        int time = TextHeaders.read(record, RecordHeaders.Part.TIME).orElse("").hashCode();
        return (Integer.toUnsignedLong(Arrays.hashCode((byte[]) record.key())) << 31) ^ Integer.toUnsignedLong(time);
    }
}
