package io.towpath.source;

import io.towpath.record.ClusterTime;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.bson.BsonArray;
import org.bson.BsonDocument;

/** What was done to collections as such, and up to when the source was looked at; kept in the connector's offsets. Not thread-safe. */
final class DdlLog {
    /** Of more the oldest are dropped, and counted. */
    static final int MOST = 500;

    private final LinkedHashMap<String, Ddl> found = new LinkedHashMap<>();
    private ClusterTime upto;
    private long dropped;
    private String trouble = "";

    /** @param from where it begins when nothing is stored */
    DdlLog(Map<String, Object> stored, ClusterTime from) {
        upto = from;
        if (stored == null) return;
        upto = ClusterTime.parse((String) stored.get("upto"));
        dropped = ((Number) stored.get("dropped")).longValue();
        trouble = (String) stored.get("trouble");
        BsonDocument.parse("{e: %s}".formatted(stored.get("events")))
                .getArray("e")
                .forEach(one -> put(Ddl.parse(one.asDocument())));
    }

    ClusterTime upto() {
        return upto;
    }

    List<Ddl> found() {
        return List.copyOf(found.values());
    }

    /** Whether it was not known: what is read again after a restart is no news. */
    boolean add(Ddl one) {
        Optional<Ddl> known = Optional.ofNullable(found.get(one.mark()));
        passed(one.time());
        if (known.isPresent() && !one.time().isAfter(known.get().time())) return false;
        put(one);
        return true;
    }

    private void put(Ddl one) {
        found.remove(one.mark());
        found.put(one.mark(), one);
        if (found.size() > MOST) {
            found.remove(found.keySet().iterator().next());
            dropped++;
        }
    }

    /** Everything up to this time has been looked at. */
    void passed(ClusterTime time) {
        if (time.isAfter(upto)) upto = time;
    }

    /** Returns whether these words are others than before. */
    boolean tell(String words) {
        boolean isNew = !words.equals(trouble);
        trouble = words;
        return isNew;
    }

    Map<String, Object> offset() {
        BsonArray events =
                new BsonArray(found.values().stream().map(Ddl::stored).toList());
        String json = new BsonDocument("e", events).toJson();
        Map<String, Object> offset = new HashMap<>();
        offset.put("upto", upto.toString());
        offset.put("events", json.substring(json.indexOf('['), json.lastIndexOf(']') + 1));
        offset.put("dropped", dropped);
        offset.put("trouble", trouble);
        return offset;
    }
}
