package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.Map;

/** From which cluster time on the log has every state of the source, and the resnapshot that fills a gap in it. Part of the root offset. */
public final class LogHistory {
    private ClusterTime copied;
    private String resnapshot;
    private String closed;
    private String gap;
    private boolean lost;

    /** @param root the root offset; empty when nothing is stored */
    LogHistory(Map<String, Object> root) {
        String stored = (String) root.get("copied");
        copied = stored == null ? null : ClusterTime.parse(stored);
        resnapshot = (String) root.getOrDefault("resnapshot", "");
        closed = (String) root.getOrDefault("closed", "");
        gap = (String) root.getOrDefault("gap", "");
        lost = (Boolean) root.getOrDefault("lost", false);
    }

    void addTo(Map<String, Object> root) {
        if (copied != null) root.put("copied", copied.toString());
        if (!resnapshot.isEmpty()) root.put("resnapshot", resnapshot);
        if (!closed.isEmpty()) root.put("closed", closed);
        if (!gap.isEmpty()) root.put("gap", gap);
        if (lost) root.put("lost", true);
    }

    /** Whether the offsets were gone while the log had records: nothing is captured until a resnapshot. */
    public boolean isLost() {
        return lost;
    }

    /** The offsets are gone. A resnapshot of the name that the configuration has already began before that. */
    void lose(String name) {
        skip(name);
        lost = true;
    }

    /** The largest cluster time of everything that was ever copied: from then on the log has every state. Null before a copy begins. */
    ClusterTime copied() {
        return copied;
    }

    /** Nothing was copied after this time. */
    void copiedBefore(ClusterTime time) {
        copied = time;
    }

    /** Something is copied as of this time. */
    void copiedAt(ClusterTime time) {
        if (copied != null && time.isAfter(copied)) copied = time;
    }

    /** The name of the latest resnapshot; empty when there was none. */
    public String resnapshot() {
        return resnapshot;
    }

    /** Since when changes are missing in the log, in whose place documents are re-read; empty when none are. */
    String gap() {
        return gap;
    }

    /** Marks a resnapshot as done, as everything is copied for the first time. */
    public void skip(String name) {
        resnapshot = name;
        closed = name;
    }

    /** A resnapshot re-reads documents whose changes are also in the log. */
    void begin(String name) {
        resnapshot = name;
    }

    /** A resnapshot re-reads documents whose changes since then are missing in the log. */
    void begin(String name, ClusterTime missingSince) {
        resnapshot = name;
        lost = false;
        if (gap.isEmpty()) gap = missingSince.toString();
    }

    /** The log holds all that a resnapshot had to read and to remove: from this time on every state is in it again. */
    public void close(String name, ClusterTime time) {
        if (!name.equals(resnapshot) || name.equals(closed)) return;
        closed = name;
        if (gap.isEmpty()) return;
        gap = "";
        copiedAt(time);
    }
}
