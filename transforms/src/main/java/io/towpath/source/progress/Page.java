package io.towpath.source;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import java.util.List;

/**
 * Rows of one range, read at one moment.
 *
 * @param documents in the order of their {@code _id}s; empty only when the range ends with it
 * @param bytes of all documents
 * @param time the cluster time of the read
 * @param isLast whether the range ends with it
 */
record Page(String namespace, int range, List<byte[]> documents, long bytes, ClusterTime time, boolean isLast)
        implements CopyStep {
    byte[] lastKey() {
        return CanonicalKey.of(documents.get(documents.size() - 1));
    }
}
