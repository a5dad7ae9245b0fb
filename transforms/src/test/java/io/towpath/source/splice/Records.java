package io.towpath.source.splice;

import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.support.Raw;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;

/** Records as the stream emits them. */
public final class Records {
    private static final RecordHeaders CONTRACT = new RecordHeaders("u", new ClusterTime(1_700_000_000, 7), 1);
    static final String HEADER = CONTRACT.text();

    private Records() {}

    public static byte[] key(int id) {
        return CanonicalKey.of(Raw.document(Raw.int32("_id", id)));
    }

    public static SourceRecord record(byte[] key, byte[] value) {
        return record("p.shop.orders", key, value);
    }

    static SourceRecord record(String topic, byte[] key, byte[] value) {
        return new LogRecord(
                Map.of("server_id", "p"), Map.of("sec", 5), topic, null, key, value, TextHeaders.of(CONTRACT));
    }
}
