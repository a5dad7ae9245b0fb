package io.towpath.source.progress;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import java.util.List;

/**
 * Rows of one range, read as of one cluster time.
 *
 * @param documents in the order of the range; empty only when the range ends with this page
 * @param bytes of all documents
 * @param time the cluster time of the read
 * @param upTo where a later read continues: the key of the last row, or its record id; empty when the range ends with this page
 */
public record Page(String namespace, int range, List<byte[]> documents, long bytes, ClusterTime time, byte[] upTo) {
    /** Rows of a range of {@code _id}s. */
    public Page(String namespace, int range, List<byte[]> documents, long bytes, ClusterTime time, boolean isLast) {
        this(
                namespace,
                range,
                documents,
                bytes,
                time,
                isLast ? RangePlan.OPEN_END : CanonicalKey.of(documents.get(documents.size() - 1)));
    }

    public boolean isLast() {
        return upTo.length == 0;
    }
}
