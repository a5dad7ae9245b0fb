package io.towpath.source.progress;

import io.towpath.record.BsonOrder;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * How one collection is divided into ranges of {@code _id}s.
 *
 * @param bounds keys in ascending order; range i holds the {@code _id}s from bound i-1 (inclusive) to bound i (exclusive)
 * @param documents about how many the collection held
 * @param bytes about how many the documents had
 * @param beganMs wall clock at which the copy began, ms since the epoch
 */
public record RangePlan(List<byte[]> bounds, long documents, long bytes, long beganMs) {
    /** The key of a range that is open at this end. */
    public static final byte[] OPEN_END = {};

    public int ranges() {
        return bounds.size() + 1;
    }

    /** About how many documents have {@code size} bytes together, at least one. */
    public long documentsIn(long size) {
        return bytes == 0 ? Long.MAX_VALUE : Math.max(1, Math.round((double) size * documents / bytes));
    }

    public int rangeOf(byte[] key) {
        int low = 0;
        int high = bounds.size();
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (BsonOrder.compare(bounds.get(middle), key) <= 0) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    /** Where a range begins; empty for the first. */
    public byte[] from(int range) {
        return range == 0 ? RangePlan.OPEN_END : bounds.get(range - 1);
    }

    /** Where a range ends; empty for the last. */
    public byte[] to(int range) {
        return range == bounds.size() ? RangePlan.OPEN_END : bounds.get(range);
    }

    /** From its offset, whose bounds are BSON documents, each of which begins with its length. */
    static RangePlan of(Map<String, Object> offset) {
        ByteBuffer buffer = ByteBuffer.wrap(Base64.getDecoder().decode((String) offset.get("bounds")));
        List<byte[]> bounds = new ArrayList<>();
        while (buffer.hasRemaining()) {
            byte[] bound = new byte[Integer.reverseBytes(buffer.getInt(buffer.position()))];
            buffer.get(bound);
            bounds.add(bound);
        }
        return new RangePlan(
                bounds,
                ((Number) offset.get("documents")).longValue(),
                ((Number) offset.get("bytes")).longValue(),
                ((Number) offset.get("began")).longValue());
    }

    Map<String, Object> offset() {
        ByteBuffer buffer =
                ByteBuffer.allocate(bounds.stream().mapToInt(b -> b.length).sum());
        bounds.forEach(buffer::put);
        return Map.of(
                "ranges", (long) ranges(),
                "documents", documents,
                "bytes", bytes,
                "began", beganMs,
                "bounds", Base64.getEncoder().encodeToString(buffer.array()));
    }
}
