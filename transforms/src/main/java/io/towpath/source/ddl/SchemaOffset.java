package io.towpath.source.ddl;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/** What the connector's offsets keep of schema changes. */
final class SchemaOffset {
    /** Of more refills, the oldest that are complete are forgotten. */
    static final int MOST_REFILLS = 200;

    /**
     * Rows that follow a change of their collection.
     *
     * @param id of the change
     * @param from its time
     * @param to when the rows were complete, or of no use any more; empty while they are not
     */
    record Refill(String namespace, String id, ClusterTime from, Optional<ClusterTime> to) {
        private static Refill parse(BsonDocument stored) {
            return new Refill(
                    stored.getString("namespace").getValue(),
                    stored.getString("id").getValue(),
                    ClusterTime.parse(stored.getString("from").getValue()),
                    Optional.ofNullable(stored.get("to"))
                            .map(time -> ClusterTime.parse(time.asString().getValue())));
        }

        private BsonDocument stored() {
            BsonDocument stored = new BsonDocument("namespace", new BsonString(namespace))
                    .append("id", new BsonString(id))
                    .append("from", new BsonString(from.toString()));
            to.ifPresent(time -> stored.append("to", new BsonString(time.toString())));
            return stored;
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
        refills.add(new Refill(namespace, id, from, Optional.empty()));
        for (int index = 0; index < refills.size() && refills.size() > MOST_REFILLS; )
            if (refills.get(index).to.isPresent()) refills.remove(index);
            else index++;
    }

    /** Returns whether a refill of the namespace was open. */
    boolean closeRefills(String namespace, ClusterTime to) {
        boolean wasOpen = false;
        for (int index = 0; index < refills.size(); index++) {
            Refill refill = refills.get(index);
            if (refill.to.isPresent() || !refill.namespace.equals(namespace)) continue;
            refills.set(index, new Refill(namespace, refill.id, refill.from, Optional.of(to)));
            wasOpen = true;
        }
        return wasOpen;
    }
}
