package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** How far the copy of one range is. */
public final class RangeCopy {
    private final List<SnapshotSpan> spans = new ArrayList<>();
    private long rows;
    private long bytes;
    private boolean done;
    private long retries;
    private String reason = "";

    RangeCopy() {}

    /** From its offset. */
    RangeCopy(Map<String, Object> offset) {
        rows = ((Number) offset.get("rows")).longValue();
        bytes = ((Number) offset.get("bytes")).longValue();
        done = (Boolean) offset.get("done");
        retries = ((Number) offset.get("retries")).longValue();
        reason = (String) offset.get("reason");
        spans.addAll(SnapshotSpan.decode((String) offset.get("pieces")));
    }

    Map<String, Object> offset() {
        return Map.of(
                "rows", rows,
                "bytes", bytes,
                "done", done,
                "t", largestTime().map(ClusterTime::toString).orElse(""),
                "pieces", SnapshotSpan.encode(spans),
                "retries", retries,
                "reason", reason);
    }

    /** Adds rows that are about to be emitted. */
    void advance(Page page) {
        int last = spans.size() - 1;
        SnapshotSpan span = new SnapshotSpan(page.time(), page.isLast() ? RangePlan.OPEN_END : page.lastKey());
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

    /** The last {@code _id} that was read; empty before the first. */
    public byte[] after() {
        return spans.isEmpty()
                ? RangePlan.OPEN_END
                : spans.get(spans.size() - 1).upTo();
    }

    /** The cluster time as of which the row of an {@code _id} was read, if it has been. */
    Optional<ClusterTime> timeOf(byte[] key) {
        for (SnapshotSpan span : spans) {
            if (span.reaches(key)) return Optional.of(span.time());
        }
        return Optional.empty();
    }

    Optional<ClusterTime> largestTime() {
        return spans.stream().map(SnapshotSpan::time).max(ClusterTime::compareTo);
    }

    Optional<ClusterTime> smallestTime() {
        return spans.stream().map(SnapshotSpan::time).min(ClusterTime::compareTo);
    }
}
