package io.towpath.sink;

import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;

/** A record with another value, or with other headers. Connect's own copies keep what Connect has read, and report that as a dead letter. */
class RecordCopy extends SinkRecord {
    RecordCopy(SinkRecord record, Object value, Iterable<Header> headers) {
        super(
                record.topic(),
                record.kafkaPartition(),
                record.keySchema(),
                record.key(),
                record.valueSchema(),
                value,
                record.kafkaOffset(),
                record.timestamp(),
                record.timestampType(),
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
