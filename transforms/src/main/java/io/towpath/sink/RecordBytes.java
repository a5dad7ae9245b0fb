package io.towpath.sink;

import java.util.Collection;
import org.apache.kafka.connect.sink.SinkRecord;

/** The size of records: of their keys and values. */
final class RecordBytes {
    private RecordBytes() {}

    static long of(Collection<SinkRecord> records) {
        long bytes = 0;
        for (SinkRecord record : records) bytes += of(record);
        return bytes;
    }

    static long of(SinkRecord record) {
        return (record.key() instanceof byte[] key ? key.length : 0)
                + (record.value() instanceof byte[] value ? value.length : 0);
    }
}
