package io.towpath.sink.ddl;

import io.towpath.connector.TextHeaders;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders.Part;
import io.towpath.record.SchemaChange;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * A schema change's record in one partition.
 *
 * @param value the record's
 * @param time its cluster time
 * @param atMs the source's wall clock
 * @param appendedMs the broker's time of the record; null if it has none
 */
public record Barrier(SchemaChange change, byte[] value, String time, long atMs, long offset, Long appendedMs) {
    /** Whether a record is a schema change's; a glance at its key. */
    public static boolean is(ConnectRecord<?> record) {
        return record.key() instanceof byte[] key && SchemaChange.isKey(key);
    }

    /** Whether a record is not what it should be, and its header says that it is a schema change. */
    public static boolean claims(ConnectRecord<?> record) {
        return TextHeaders.read(record, Part.OPERATION)
                .filter(SchemaChange.OPERATION::equals)
                .isPresent();
    }

    /** Throws {@link ConnectException} when this version cannot read it: what follows must not be applied without it. */
    public static Barrier of(SinkRecord record) {
        try {
            TextHeaders.requireKnown(record);
            byte[] value = record.value() instanceof byte[] bytes ? bytes : null;
            SchemaChange change = SchemaChange.decode((byte[]) record.key(), value);
            if (!change.partitions().containsKey(record.topic()))
                throw new ContractException("it does not concern the topic " + record.topic());
            return new Barrier(
                    change,
                    value,
                    TextHeaders.read(record, Part.TIME).orElse(""),
                    TextHeaders.read(record, Part.AT).map(Long::parseLong).orElse(0L),
                    record.kafkaOffset(),
                    record.timestamp());
        } catch (ContractException | NumberFormatException error) {
            throw unreadable(record.topic(), record.kafkaPartition(), record.kafkaOffset(), error);
        }
    }

    /** The failure of a task that meets a schema change that it cannot read. */
    public static ConnectException unreadable(String topic, int partition, long offset, RuntimeException error) {
        return new ConnectException(
                ("TWP-SCHEMA-RECORD: the record at offset %d of %s-%d is a schema change that this version of Towpath cannot read: %s. "
                                + "A later version wrote it: install that on every Connect worker, then `towpath restart PIPELINE`")
                        .formatted(offset, topic, partition, error.getMessage()),
                error);
    }
}
