package io.towpath.source;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** How far one range has come. */
final class RangeCopy {
    private final List<Piece> pieces = new ArrayList<>();
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
        pieces.addAll(Piece.decode((String) offset.get("pieces")));
    }

    Map<String, Object> offset() {
        return Map.of(
                "rows", rows,
                "bytes", bytes,
                "done", done,
                "t", largestTime().map(ClusterTime::toString).orElse(""),
                "pieces", Piece.encode(pieces),
                "retries", retries,
                "reason", reason);
    }

    /** Takes in rows that are about to be emitted. */
    void advance(Page page) {
        int last = pieces.size() - 1;
        Piece piece = new Piece(page.time(), page.isLast() ? Piece.END : page.lastKey());
        if (last >= 0 && pieces.get(last).time().equals(page.time())) pieces.set(last, piece);
        else pieces.add(piece);
        rows += page.documents().size();
        bytes += page.bytes();
        done = page.isLast();
        if (done) reason = "";
    }

    void troubled(String why) {
        retries++;
        reason = why;
    }

    boolean isDone() {
        return done;
    }

    long rows() {
        return rows;
    }

    long bytes() {
        return bytes;
    }

    long retries() {
        return retries;
    }

    String reason() {
        return reason;
    }

    /** The last {@code _id} that was read; empty before the first. */
    byte[] after() {
        return pieces.isEmpty() ? Piece.END : pieces.get(pieces.size() - 1).upTo();
    }

    /** The moment at which the row of an {@code _id} was read, if it has been. */
    Optional<ClusterTime> timeOf(byte[] key) {
        for (Piece piece : pieces) {
            if (piece.reaches(key)) return Optional.of(piece.time());
        }
        return Optional.empty();
    }

    Optional<ClusterTime> largestTime() {
        return pieces.stream().map(Piece::time).max(ClusterTime::compareTo);
    }

    Optional<ClusterTime> smallestTime() {
        return pieces.stream().map(Piece::time).min(ClusterTime::compareTo);
    }
}
