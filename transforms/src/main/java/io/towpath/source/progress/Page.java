package io.towpath.source.progress;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import java.util.List;

/**
 * Rows of one range, read as of one cluster time.
 *
 * @param documents in the order of their {@code _id}s; empty only when the range ends with this page
 * @param bytes of all documents
 * @param time the cluster time of the read
 * @param isLast whether the range ends with this page
 */
public record Page(String namespace, int range, List<byte[]> documents, long bytes, ClusterTime time, boolean isLast) {
    public byte[] lastKey() {
        return CanonicalKey.of(documents.get(documents.size() - 1));
    }
}
