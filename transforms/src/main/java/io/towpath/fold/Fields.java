package io.towpath.fold;

import io.towpath.record.BsonElements;
import java.util.LinkedHashMap;
import java.util.Map;
import org.bson.io.BsonOutput;

/** A document that changes: existing fields keep their place, new ones come last. */
final class Fields extends Container {
    private final Map<String, Value> values = new LinkedHashMap<>();

    /** Null when a name is duplicate: the server's operators see only one of them. */
    static Fields open(Slice slice) {
        Fields fields = new Fields();
        BsonElements elements = new BsonElements(slice.bytes(), slice.start());
        while (elements.next()) {
            Slice value = new Slice(elements.type(), slice.bytes(), elements.valueStart(), elements.valueEnd());
            if (fields.values.put(name(slice.bytes(), elements), value) != null) return null;
        }
        return fields;
    }

    @Override
    public byte type() {
        return BsonElements.DOCUMENT;
    }

    @Override
    Value get(String name) {
        return values.get(name);
    }

    @Override
    boolean accepts(String name) {
        return true;
    }

    @Override
    void put(String name, Value value) {
        values.put(name, value);
    }

    @Override
    void remove(String name) {
        values.remove(name);
    }

    @Override
    public void writeTo(BsonOutput out) {
        frame(out, () -> values.forEach((name, value) -> write(out, name, value)));
    }
}
