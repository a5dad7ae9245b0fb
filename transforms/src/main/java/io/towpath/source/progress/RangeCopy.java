package io.towpath.source.progress;

import io.towpath.record.BsonOrder;
import io.towpath.record.ClusterTime;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** How far the copy of one range is. */
public final class RangeCopy {
    private final List<Span> spans = new ArrayList<>();
    private long rows;
    private long bytes;
    private boolean done;
    private long retries;
    private String reason = "";

    RangeCopy() {}

    RangeCopy(Map<String, Object> offset) {
        rows = ((Number) offset.get("rows")).longValue();
        bytes = ((Number) offset.get("bytes")).longValue();
        done = (Boolean) offset.get("done");
        retries = ((Number) offset.get("retries")).longValue();
        reason = (String) offset.get("reason");
        spans.addAll(Span.decode((String) offset.get("pieces")));
    }

    Map<String, Object> offset() {
        return Map.of(
                "rows", rows,
                "bytes", bytes,
                "done", done,
                "t", largestTime().map(ClusterTime::toString).orElse(""),
                "pieces", Span.encode(spans),
                "retries", retries,
                "reason", reason);
    }

    /** Adds rows that are about to be emitted. */
    void advance(Page page) {
        int last = spans.size() - 1;
        Span span = new Span(page.time(), page.upTo());
        if (last >= 0 && spans.get(last).time().equals(page.time())) spans.set(last, span);
        else spans.add(span);
        rows += page.documents().size();
        bytes += page.bytes();
        done = page.isLast();
        if (done) reason = "";
    }

    public void retried(String cause) {
        retries++;
        reason = cause;
    }

    public boolean isDone() {
        return done;
    }

    public long rows() {
        return rows;
    }

    public long bytes() {
        return bytes;
    }

    String reason() {
        return reason;
    }

    /** The last {@code _id}, or record id, that was read; empty before the first. */
    public byte[] after() {
        return spans.isEmpty()
                ? RangePlan.OPEN_END
                : spans.get(spans.size() - 1).upTo();
    }

    /** The cluster time as of which the row of an {@code _id} was read, if it has been. */
    Optional<ClusterTime> timeOf(byte[] key) {
        for (Span span : spans) {
            if (span.reaches(key)) return Optional.of(span.time());
        }
        return Optional.empty();
    }

    Optional<ClusterTime> largestTime() {
        return spans.stream().map(Span::time).max(ClusterTime::compareTo);
    }

    Optional<ClusterTime> smallestTime() {
        return spans.stream().map(Span::time).min(ClusterTime::compareTo);
    }

    /**
     * Consecutive rows of a range that were read as of one cluster time. A range whose read was interrupted continues at a later time, so it
     * has several.
     *
     * @param time every event up to this time is in the rows
     * @param upTo the last {@code _id} or record id; empty when the rows reach the end of their range
     */
    private record Span(ClusterTime time, byte[] upTo) {
        private boolean reaches(byte[] key) {
            return upTo.length == 0 || BsonOrder.compare(key, upTo) <= 0;
        }

        static String encode(List<Span> spans) {
            int length = spans.stream()
                    .mapToInt(span -> Long.BYTES + Integer.BYTES + span.upTo.length)
                    .sum();
            ByteBuffer buffer = ByteBuffer.allocate(length);
            spans.forEach(span ->
                    buffer.putLong(span.time.bits()).putInt(span.upTo.length).put(span.upTo));
            return Base64.getEncoder().encodeToString(buffer.array());
        }

        static List<Span> decode(String text) {
            ByteBuffer buffer = ByteBuffer.wrap(Base64.getDecoder().decode(text));
            List<Span> spans = new ArrayList<>();
            while (buffer.hasRemaining()) {
                ClusterTime time = ClusterTime.ofBits(buffer.getLong());
                byte[] upTo = new byte[buffer.getInt()];
                buffer.get(upTo);
                spans.add(new Span(time, upTo));
            }
            return spans;
        }
    }
}
