package io.towpath.connector;

import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * A record about a document. It equals only itself: Connect keeps the records of a transaction in hash maps, and would hash and compare all
 * of their parts.
 */
public final class LogRecord extends SourceRecord {
    /**
     * @param kafkaPartition null to have the producer choose it by the key
     * @param value null for a delete
     */
    public LogRecord(
            Map<String, ?> partition,
            Map<String, ?> offset,
            String topic,
            Integer kafkaPartition,
            byte[] key,
            byte[] value,
            Iterable<Header> headers) {
        super(
                partition,
                offset,
                topic,
                kafkaPartition,
                Schema.BYTES_SCHEMA,
                key,
                Schema.OPTIONAL_BYTES_SCHEMA,
                value,
                null,
                headers);
    }

    /** The same record with another value. */
    public static LogRecord with(SourceRecord record, byte[] value) {
        return with(record, value, record.headers());
    }

    /** The same record with other headers. */
    public static LogRecord with(SourceRecord record, Iterable<Header> headers) {
        return with(record, (byte[]) record.value(), headers);
    }

    private static LogRecord with(SourceRecord record, byte[] value, Iterable<Header> headers) {
        return new LogRecord(
                record.sourcePartition(),
                record.sourceOffset(),
                record.topic(),
                record.kafkaPartition(),
                (byte[]) record.key(),
                value,
                headers);
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
