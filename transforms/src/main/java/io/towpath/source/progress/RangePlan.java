package io.towpath.source.progress;

import io.towpath.record.BsonOrder;
import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * How one collection is divided into ranges: of {@code _id}s, or, where it is read in natural order, of record ids.
 *
 * @param bounds in ascending order. Keys: range i holds the {@code _id}s from bound i-1 (inclusive) to bound i (exclusive). Or
 *     {@linkplain RecordIds#position record ids}: range i holds those after bound i-1 up to bound i
 * @param documents about how many the collection held
 * @param bytes about how many the documents had
 * @param beganMs wall clock at which the copy began, ms since the epoch
 * @param recordIds present if the ranges are of record ids
 */
public record RangePlan(List<byte[]> bounds, long documents, long bytes, long beganMs, Optional<RecordIds> recordIds) {
    /** The key of a range that is open at this end. */
    public static final byte[] OPEN_END = {};

    private static final String BOUNDS = "bounds";
    private static final String RECORD_IDS = "record_ids";

    /** Ranges of {@code _id}s. */
    public RangePlan(List<byte[]> bounds, long documents, long bytes, long beganMs) {
        this(bounds, documents, bytes, beganMs, Optional.empty());
    }

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

    static RangePlan of(Map<String, Object> offset) {
        boolean isNatural = offset.containsKey(RECORD_IDS);
        ByteBuffer buffer =
                ByteBuffer.wrap(Base64.getDecoder().decode((String) offset.get(isNatural ? RECORD_IDS : BOUNDS)));
        List<byte[]> bounds = new ArrayList<>();
        while (buffer.hasRemaining()) {
            // a key is a BSON document, which begins with its length
            byte[] bound = new byte[isNatural ? Long.BYTES : Integer.reverseBytes(buffer.getInt(buffer.position()))];
            buffer.get(bound);
            bounds.add(bound);
        }
        return new RangePlan(
                bounds,
                ((Number) offset.get("documents")).longValue(),
                ((Number) offset.get("bytes")).longValue(),
                ((Number) offset.get("began")).longValue(),
                isNatural
                        ? Optional.of(new RecordIds(
                                (String) offset.get("member"), (String) offset.get("table"), ClusterTime.parse((String)
                                        offset.get("t"))))
                        : Optional.empty());
    }

    Map<String, Object> offset() {
        ByteBuffer buffer =
                ByteBuffer.allocate(bounds.stream().mapToInt(b -> b.length).sum());
        bounds.forEach(buffer::put);
        Map<String, Object> offset = new HashMap<>(
                Map.of("ranges", (long) ranges(), "documents", documents, "bytes", bytes, "began", beganMs));
        offset.put(
                recordIds.isPresent() ? RECORD_IDS : BOUNDS, Base64.getEncoder().encodeToString(buffer.array()));
        recordIds.ifPresent(ids -> offset.putAll(Map.of(
                "member", ids.member(), "table", ids.table(), "t", ids.time().toString())));
        return offset;
    }
}
