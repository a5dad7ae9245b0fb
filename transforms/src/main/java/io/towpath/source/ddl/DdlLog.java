package io.towpath.source.ddl;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Schema changes, and up to when the watch has read the source; kept in the connector's offsets. Not thread-safe. */
public final class DdlLog {
    /** Of more, the log drops the oldest and counts them. */
    static final int MOST = 500;

    private final LinkedHashMap<String, Ddl> changes = new LinkedHashMap<>();
    private ClusterTime upto;
    private long dropped;
    private String trouble = "";

    /** @param from where the watch begins when nothing is stored */
    public DdlLog(Map<String, Object> stored, ClusterTime from) {
        upto = from;
        if (stored == null) return;
        upto = ClusterTime.parse((String) stored.get("upto"));
        dropped = ((Number) stored.get("dropped")).longValue();
        trouble = (String) stored.get("trouble");
        JsonArrays.parse((String) stored.get("events")).forEach(change -> put(Ddl.parse(change.asDocument())));
    }

    ClusterTime upto() {
        return upto;
    }

    List<Ddl> changes() {
        return List.copyOf(changes.values());
    }

    /** Returns whether the change is new: after a restart the watch reads some again. */
    boolean add(Ddl change) {
        Optional<Ddl> known = Optional.ofNullable(changes.get(change.mark()));
        passed(change.time());
        if (known.isPresent() && !change.time().isAfter(known.get().time())) return false;
        put(change);
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
    void passed(ClusterTime time) {
        if (time.isAfter(upto)) upto = time;
    }

    /** Returns whether the message differs from the last one. */
    boolean report(String message) {
        boolean isNew = !message.equals(trouble);
        trouble = message;
        return isNew;
    }

    Map<String, Object> offset() {
        Map<String, Object> offset = new HashMap<>();
        offset.put("upto", upto.toString());
        offset.put(
                "events",
                JsonArrays.of(changes.values().stream().map(Ddl::stored).toList()));
        offset.put("dropped", dropped);
        offset.put("trouble", trouble);
        return offset;
    }
}
