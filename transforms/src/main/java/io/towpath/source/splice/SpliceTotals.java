package io.towpath.source.splice;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** The counts of splices over the life of a pipeline, as an offset of its connector. */
public final class SpliceTotals {
    private static final String SPLICES = "splices";
    private static final String SAVED = "saved";
    private static final String DROPPED = "dropped";
    private static final long PAUSE_NS = Duration.ofSeconds(5).toNanos();

    private final long droppedBefore;
    private long splices;
    private long saved;
    private long dropped;
    private boolean hasChanged;
    private boolean isWritten;
    private long writtenNs;

    /** @param offset what is stored; null when nothing is */
    public SpliceTotals(Map<String, Object> offset) {
        splices = stored(offset, SPLICES);
        saved = stored(offset, SAVED);
        dropped = stored(offset, DROPPED);
        droppedBefore = dropped;
    }

    private static long stored(Map<String, Object> offset, String name) {
        return offset == null ? 0 : ((Number) offset.get(name)).longValue();
    }

    void spliced(long count, long bytes) {
        splices += count;
        saved += bytes;
        hasChanged = true;
    }

    /** @param count since the task began */
    void dropped(long count) {
        if (droppedBefore + count == dropped) return;
        dropped = droppedBefore + count;
        hasChanged = true;
    }

    /** The offset to store now; empty when the stored one is the same, or only a few seconds old. */
    public Optional<Map<String, Object>> dueOffset(long nowNs) {
        if (!hasChanged || isWritten && nowNs - writtenNs < PAUSE_NS) return Optional.empty();
        hasChanged = false;
        isWritten = true;
        writtenNs = nowNs;
        return Optional.of(Map.of(SPLICES, splices, SAVED, saved, DROPPED, dropped));
    }
}
