package io.towpath.sink;

import io.towpath.connector.TextHeaders;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * A record that the destination refuses.
 *
 * @param namespace of its document at the destination; empty when its topic names none
 * @param code the server's error code; 0 when the record never got there
 * @param isReported whether the dead-letter topic has it
 */
record DeadLetter(SinkRecord record, String namespace, int code, String reason, boolean isReported) {
    DeadLetter asReported() {
        return new DeadLetter(record, namespace, code, reason, true);
    }

    /** As Connect's reporter gets it: a copy, as Connect would send its own record without our headers. */
    SinkRecord toRecord() {
        SinkRecord letter = new SinkRecord(
                record.topic(),
                record.kafkaPartition(),
                record.keySchema(),
                record.key(),
                record.valueSchema(),
                record.value(),
                record.kafkaOffset(),
                record.timestamp(),
                record.timestampType(),
                record.headers().duplicate());
        TextHeaders.addDeadLetter(
                letter.headers(),
                record.topic(),
                record.kafkaPartition(),
                record.kafkaOffset(),
                namespace,
                code,
                reason);
        return letter;
    }
}
