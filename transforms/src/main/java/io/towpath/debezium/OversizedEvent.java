package io.towpath.debezium;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;

/**
 * A change event of which the server sent only the key, because the whole event is too large.
 *
 * @param namespace {@code db.collection}
 * @param key as records have it
 */
public record OversizedEvent(String namespace, byte[] key, ClusterTime time) {
    /** Of an event that {@link DebeziumEvent#isOversized}. */
    public static OversizedEvent of(DebeziumEvent event) {
        return new OversizedEvent(event.namespace(), CanonicalKey.of(event.documentKey()), event.time());
    }
}
