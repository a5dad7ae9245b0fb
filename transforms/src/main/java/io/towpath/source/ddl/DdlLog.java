package io.towpath.source.ddl;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Schema changes, and up to when the watch has read the source; kept in the connector's offsets. */
public final class DdlLog {
    /** Of more, the log drops the oldest and counts them. */
    static final int MOST = 500;
    /** How often the position is stored while nothing is found. */
    private static final long STORED_NS = Duration.ofSeconds(30).toNanos();

    private final LinkedHashMap<String, Ddl> changes = new LinkedHashMap<>();
    private ClusterTime upto;
    private long dropped;
    private String problem = "";
    /** Whether there is something to store: at first, where the log begins. */
    private boolean isDue = true;

    private long storedNs = System.nanoTime();

    /** @param from where the watch begins when nothing is stored */
    public DdlLog(Map<String, Object> stored, ClusterTime from) {
        upto = from;
        if (stored == null) return;
        upto = ClusterTime.parse((String) stored.get("upto"));
        dropped = ((Number) stored.get("dropped")).longValue();
        problem = (String) stored.get("error");
        JsonArrays.parse((String) stored.get("events")).forEach(change -> put(Ddl.parse(change.asDocument())));
    }

    synchronized ClusterTime upto() {
        return upto;
    }

    synchronized List<Ddl> changes() {
        return List.copyOf(changes.values());
    }

    /** Returns whether the change is new: after a restart the watch reads some again. */
    synchronized boolean add(Ddl change) {
        Optional<Ddl> known = Optional.ofNullable(changes.get(change.mark()));
        passed(change.time());
        if (known.isPresent() && !change.time().isAfter(known.get().time())) return false;
        put(change);
        isDue = true;
        return true;
    }

    private void put(Ddl change) {
        changes.remove(change.mark());
        changes.put(change.mark(), change);
        if (changes.size() > MOST) {
            changes.remove(changes.keySet().iterator().next());
            dropped++;
        }
    }

    /** The watch has read everything up to this time. */
    synchronized void passed(ClusterTime time) {
        if (time.isAfter(upto)) upto = time;
    }

    /** Returns whether the message differs from the last one. */
    synchronized boolean report(String message) {
        boolean isNew = !message.equals(problem);
        problem = message;
        isDue |= isNew;
        return isNew;
    }

    /** The offset that has to be stored now, if any. */
    synchronized Optional<Map<String, Object>> dueOffset() {
        if (!isDue && System.nanoTime() - storedNs < STORED_NS) return Optional.empty();
        isDue = false;
        storedNs = System.nanoTime();
        return Optional.of(offset());
    }

    synchronized Map<String, Object> offset() {
        Map<String, Object> offset = new HashMap<>();
        offset.put("upto", upto.toString());
        offset.put(
                "events",
                JsonArrays.of(changes.values().stream().map(Ddl::stored).toList()));
        offset.put("dropped", dropped);
        offset.put("error", problem);
        return offset;
    }
}
