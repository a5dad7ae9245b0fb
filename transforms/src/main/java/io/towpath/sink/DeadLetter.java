package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * A record that the destination refuses.
 *
 * @param namespace where its document would be at the destination; empty when its topic names none
 * @param code the server's number for the reason; 0 when the record never got there
 * @param told whether the dead-letter topic has it
 */
record DeadLetter(SinkRecord record, String namespace, int code, String reason, boolean told) {
    DeadLetter asTold() {
        return new DeadLetter(record, namespace, code, reason, true);
    }

    /** As it goes to Connect. A record of our own, as Connect sends its own records as they came, without what is added. */
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
        add(letter, "topic", record.topic());
        add(letter, "partition", Integer.toString(record.kafkaPartition()));
        add(letter, "offset", Long.toString(record.kafkaOffset()));
        add(letter, "namespace", namespace);
        add(letter, "code", Integer.toString(code));
        add(letter, "reason", reason);
        return letter;
    }

    private static void add(SinkRecord letter, String name, String text) {
        letter.headers().add(name, text.getBytes(UTF_8), Schema.BYTES_SCHEMA);
    }
}
