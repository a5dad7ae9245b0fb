package io.towpath.debezium;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;

/**
 * A change event in place of which its document is read.
 *
 * @param namespace {@code db.collection}
 * @param key as records have it
 * @param isOversized whether the server sent only the key, because the event is too large
 */
public record EventKey(String namespace, byte[] key, ClusterTime time, boolean isOversized) {
    /** Of an event that {@link DebeziumEvent#needsDocument}. */
    public static EventKey of(DebeziumEvent event) {
        return new EventKey(event.namespace(), CanonicalKey.of(event.documentKey()), event.time(), event.isOversized());
    }
}
