package io.towpath.source.progress;

import io.towpath.record.BsonOrder;
import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * Consecutive rows of a range that were read as of one cluster time. A range whose read was interrupted continues at a later time, so it
 * has several.
 *
 * @param time every event up to this time is in the rows
 * @param upTo key of the last {@code _id}; empty when the rows reach the end of their range
 */
public record SnapshotSpan(ClusterTime time, byte[] upTo) {
    boolean reaches(byte[] key) {
        return upTo.length == 0 || BsonOrder.compare(key, upTo) <= 0;
    }

    static String encode(List<SnapshotSpan> spans) {
        int length = spans.stream()
                .mapToInt(span -> Long.BYTES + Integer.BYTES + span.upTo.length)
                .sum();
        ByteBuffer buffer = ByteBuffer.allocate(length);
        spans.forEach(span ->
                buffer.putLong(span.time.bits()).putInt(span.upTo.length).put(span.upTo));
        return Base64.getEncoder().encodeToString(buffer.array());
    }

    static List<SnapshotSpan> decode(String text) {
        ByteBuffer buffer = ByteBuffer.wrap(Base64.getDecoder().decode(text));
        List<SnapshotSpan> spans = new ArrayList<>();
        while (buffer.hasRemaining()) {
            ClusterTime time = ClusterTime.ofBits(buffer.getLong());
            byte[] upTo = new byte[buffer.getInt()];
            buffer.get(upTo);
            spans.add(new SnapshotSpan(time, upTo));
        }
        return spans;
    }
}
