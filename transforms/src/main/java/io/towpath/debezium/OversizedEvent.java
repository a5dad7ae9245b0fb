package io.towpath.debezium;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * A change event of which the server sent only the key, because the whole event is too large.
 *
 * @param namespace {@code db.collection}
 * @param key as records have it
 */
public record OversizedEvent(String namespace, byte[] key, ClusterTime time) {
    /** Empty for every other record of Debezium's. */
    public static Optional<OversizedEvent> in(SourceRecord record) {
        return DebeziumEvent.in(record)
                .filter(DebeziumEvent::isOversized)
                .map(event ->
                        new OversizedEvent(event.namespace(), CanonicalKey.of(event.documentKey()), event.time()));
    }
}
