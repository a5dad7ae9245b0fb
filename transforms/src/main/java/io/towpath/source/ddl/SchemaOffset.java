package io.towpath.source.ddl;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;

/** What the connector's offsets keep of schema changes. */
final class SchemaOffset {
    /** Of more refills, the oldest that are complete are joined. */
    static final int MOST_REFILLS = 200;

    /**
     * Rows that follow a change of their collection; or several of these joined.
     *
     * @param namespace empty for joined ones of several collections
     * @param id of the change; of joined ones, the last
     * @param from its time; of joined ones, the first
     * @param to when the rows were complete, or of no use any more; empty while they are not
     * @param changes how many are joined
     */
    record Refill(String namespace, String id, ClusterTime from, Optional<ClusterTime> to, int changes) {
        private Refill(String namespace, String id, ClusterTime from) {
            this(namespace, id, from, Optional.empty(), 1);
        }

        private static Refill parse(BsonDocument stored) {
            return new Refill(
                    stored.getString("namespace").getValue(),
                    stored.getString("id").getValue(),
                    ClusterTime.parse(stored.getString("from").getValue()),
                    Optional.ofNullable(stored.get("to"))
                            .map(time -> ClusterTime.parse(time.asString().getValue())),
                    stored.getInt32("changes", new BsonInt32(1)).getValue());
        }

        private BsonDocument stored() {
            BsonDocument stored = new BsonDocument("namespace", new BsonString(namespace))
                    .append("id", new BsonString(id))
                    .append("from", new BsonString(from.toString()));
            to.ifPresent(time -> stored.append("to", new BsonString(time.toString())));
            if (changes > 1) stored.append("changes", new BsonInt32(changes));
            return stored;
        }

        private Refill closed(ClusterTime time) {
            return new Refill(namespace, id, from, Optional.of(time), changes);
        }

        /** Both as one, with the time between them. Both are complete. */
        private Refill joined(Refill later) {
            return new Refill(
                    namespace.equals(later.namespace) ? namespace : "",
                    later.id,
                    Collections.min(List.of(from, later.from)),
                    Optional.of(Collections.max(List.of(to.orElseThrow(), later.to.orElseThrow()))),
                    changes + later.changes);
        }
    }

    private boolean isOn;
    private ClusterTime upto;
    private final TreeSet<String> views = new TreeSet<>();
    private final List<Refill> refills = new ArrayList<>();
    private String problem = "";

    /** @param stored null when nothing is */
    SchemaOffset(Map<String, Object> stored) {
        if (stored == null) return;
        isOn = (Boolean) stored.get("on");
        String time = (String) stored.getOrDefault("upto", "");
        upto = time.isEmpty() ? null : ClusterTime.parse(time);
        problem = (String) stored.get("error");
        for (BsonValue view : JsonArrays.parse((String) stored.get("views")))
            views.add(view.asString().getValue());
        for (BsonValue refill : JsonArrays.parse((String) stored.get("refills")))
            refills.add(Refill.parse(refill.asDocument()));
    }

    Map<String, Object> offset() {
        Map<String, Object> offset = new HashMap<>();
        offset.put("on", isOn);
        if (upto != null) offset.put("upto", upto.toString());
        offset.put("views", JsonArrays.of(views.stream().map(BsonString::new).toList()));
        offset.put("refills", JsonArrays.of(refills.stream().map(Refill::stored).toList()));
        offset.put("error", problem);
        return offset;
    }

    /** Whether schema changes are captured, or what exists is described at least. */
    boolean isOn() {
        return isOn;
    }

    /** Up to when schema changes are emitted; empty before the stream. */
    Optional<ClusterTime> upto() {
        return Optional.ofNullable(upto);
    }

    /** The selected views that exist. */
    TreeSet<String> views() {
        return views;
    }

    String problem() {
        return problem;
    }

    void begin() {
        isOn = true;
    }

    /** Nothing is captured from now on: refills need not be awaited. */
    void end() {
        isOn = false;
        upto = null;
        views.clear();
        problem = "";
    }

    void passed(ClusterTime time) {
        if (upto == null || time.isAfter(upto)) upto = time;
    }

    void report(String message) {
        problem = message;
    }

    List<Refill> openRefills() {
        return refills.stream().filter(refill -> refill.to.isEmpty()).toList();
    }

    void openRefill(String namespace, String id, ClusterTime from) {
        refills.add(new Refill(namespace, id, from));
        for (int left = refills.size(); left > MOST_REFILLS; left--) joinOldest();
    }

    /** Of one collection, as the states of the others are not missing; or else, of any. */
    private void joinOldest() {
        Map<String, Refill> oldest = new LinkedHashMap<>();
        for (Refill refill : refills) {
            if (refill.to.isEmpty()) continue;
            Refill earlier = oldest.putIfAbsent(refill.namespace, refill);
            if (earlier == null) continue;
            join(earlier, refill);
            return;
        }
        Iterator<Refill> complete = oldest.values().iterator();
        if (oldest.size() > 1) join(complete.next(), complete.next());
    }

    private void join(Refill earlier, Refill later) {
        refills.set(refills.indexOf(earlier), earlier.joined(later));
        refills.remove(later);
    }

    /** Returns whether a refill of the namespace was open. */
    boolean closeRefills(String namespace, ClusterTime to) {
        boolean wasOpen = false;
        for (int index = 0; index < refills.size(); index++) {
            Refill refill = refills.get(index);
            if (refill.to.isPresent() || !refill.namespace.equals(namespace)) continue;
            refills.set(index, refill.closed(to));
            wasOpen = true;
        }
        return wasOpen;
    }
}
