package io.towpath.source;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.RecordHeaders;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.AbstractRecords;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Records that are larger than their topic takes become dead letters, which name the document by its key and say why: Kafka would refuse
 * them again and again, and nothing behind them would come out. {@code repair --dead-letters} has the documents read again.
 */
final class SetAside implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SetAside.class);
    /** What is smaller is not looked at: no topic's limit is, in its right mind. */
    static final int SMALL = 64 << 10;

    private final SourceSettings settings;
    private final SourceMetrics metrics;
    private final int largestRequest;
    private final TopicLimits limits;

    /** @param largestRequest the producer's {@code max.request.size} */
    SetAside(SourceSettings settings, SourceMetrics metrics, int largestRequest) {
        this.settings = settings;
        this.metrics = metrics;
        this.largestRequest = largestRequest;
        this.limits = new TopicLimits(settings.requestsConsumer());
    }

    /** The same records, with dead letters in place of those that are too large; null stays null. */
    List<SourceRecord> from(List<SourceRecord> records) throws InterruptedException {
        if (records == null) return null;
        List<SourceRecord> fitting = null;
        for (int index = 0; index < records.size(); index++) {
            SourceRecord record = records.get(index);
            String reason = reason(record);
            if (!reason.isEmpty() && fitting == null) fitting = new ArrayList<>(records.subList(0, index));
            if (fitting != null) fitting.add(reason.isEmpty() ? record : letter(record, reason));
        }
        return fitting == null ? records : fitting;
    }

    /** Why a record cannot be written; empty when it can. */
    private String reason(SourceRecord record) throws InterruptedException {
        if (!settings.readsRequests()
                || !(record.key() instanceof byte[] key)
                || length(key) + length(record.value()) < SMALL) return "";
        byte[] value = (byte[]) record.value();
        int size = AbstractRecords.estimateSizeInBytesUpperBound(
                RecordBatch.CURRENT_MAGIC_VALUE, CompressionType.LZ4, key, value, headers(record));
        if (size > largestRequest) {
            return "the record has %,d bytes, and the source connector's producer sends %,d at most (max.request.size)"
                    .formatted(size, largestRequest);
        }
        int limit = limits.of(record.topic());
        if (size <= limit) return "";
        int packed = MemoryRecords.withRecords(
                        Compression.lz4().build(), new SimpleRecord(0, key, value, headers(record)))
                .sizeInBytes();
        if (packed <= limit) return "";
        return "the record has %,d bytes, and the topic %s takes %,d at most (max.message.bytes): raise that, then `towpath repair PIPELINE --dead-letters`"
                .formatted(packed, record.topic(), limit);
    }

    private static int length(Object bytes) {
        return bytes instanceof byte[] array ? array.length : 0;
    }

    private static org.apache.kafka.common.header.Header[] headers(SourceRecord record) {
        List<org.apache.kafka.common.header.Header> found = new ArrayList<>();
        for (Header header : record.headers()) found.add(new RecordHeader(header.key(), (byte[]) header.value()));
        return found.toArray(new org.apache.kafka.common.header.Header[0]);
    }

    private SourceRecord letter(SourceRecord record, String reason) {
        byte[] key = (byte[]) record.key();
        String namespace = record.topic().substring(settings.name().length() + 1);
        String id = new RawBsonDocument(key).toJson();
        if (settings.deadLettersTopic().isEmpty()) {
            throw new ConnectException("%s %s cannot be written to the log: %s".formatted(namespace, id, reason));
        }
        LOGGER.error("{} {} is set aside: {}", namespace, id, reason);
        metrics.oversized();
        Headers headers = record.headers().duplicate();
        add(headers, "topic", record.topic());
        add(headers, "partition", "-1"); // it is in none
        add(headers, "offset", Long.toString(place(record)));
        add(headers, "namespace", namespace);
        add(headers, "code", "0");
        add(headers, "reason", reason);
        return new SourceRecord(
                record.sourcePartition(),
                record.sourceOffset(),
                settings.deadLettersTopic(),
                0,
                Schema.BYTES_SCHEMA,
                key,
                Schema.OPTIONAL_BYTES_SCHEMA,
                key,
                null,
                headers);
    }

    /** One number for a document and a moment, by which a letter is told from others. */
    private static long place(SourceRecord record) {
        Header time = record.headers().lastWithName(RecordHeaders.TIME);
        byte[] moment = time == null ? new byte[0] : (byte[]) time.value();
        return (Integer.toUnsignedLong(java.util.Arrays.hashCode((byte[]) record.key())) << 31)
                ^ Integer.toUnsignedLong(java.util.Arrays.hashCode(moment));
    }

    private static void add(Headers headers, String name, String text) {
        headers.add(name, text.getBytes(UTF_8), Schema.BYTES_SCHEMA);
    }

    @Override
    public void close() {
        limits.close();
    }
}
