package io.towpath.fold;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.bson.io.BasicOutputBuffer;

/**
 * The places that one write changes with update operators. None lies within another, and those that may be new in one place ascend in the
 * server's order.
 */
final class MergedWrite {
    /** The change of one place. A value to set may still change. */
    static final class Entry {
        final UpdateStep step;
        Value value;

        private Entry(UpdateStep step) {
            this.step = step;
            this.value = step.value();
        }

        UpdateStep.Kind kind() {
            return step.kind();
        }

        /** The value to set, or the array that the splice leaves, open for changes; null when it cannot be opened. */
        Container open() {
            Container container = value == null ? Elements.after(step.splice()) : Container.opened(value);
            if (container != null) value = container;
            return container;
        }

        private UpdateStep asStep() {
            if (kind() == UpdateStep.Kind.SPLICE && value != null)
                return UpdateStep.splice(((Elements) value).since(step.splice()));
            if (kind() != UpdateStep.Kind.SET || value instanceof Slice slice && slice == step.value()) return step;
            if (value instanceof Slice slice) return UpdateStep.set(step.path(), slice);
            BasicOutputBuffer out = new BasicOutputBuffer();
            value.writeTo(out);
            byte[] bytes = out.toByteArray();
            return UpdateStep.set(step.path(), new Slice(value.type(), bytes, 0, bytes.length));
        }
    }

    private final TreeMap<String, Entry> entries = new TreeMap<>();
    /** Place → the name, last in the server's order, that was set in it and may be new. */
    private final Map<String, String> lastIn = new HashMap<>();

    boolean isEmpty() {
        return entries.isEmpty();
    }

    int size() {
        return entries.size();
    }

    /** The entry of this place or of one that contains it; null when there is none. */
    Entry around(String path) {
        for (int dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1)) {
            Entry entry = entries.get(path.substring(0, dot));
            if (entry != null) return entry;
        }
        return entries.get(path);
    }

    /** The entries of places within this one. */
    NavigableMap<String, Entry> within(String path) {
        return entries.subMap(path + '.', true, path + (char) ('.' + 1), false);
    }

    /** Forgets this place and all within it; returns whether these show that the place existed before. */
    boolean forget(String path) {
        NavigableMap<String, Entry> inside = within(path);
        boolean wasThere = !inside.isEmpty();
        inside.clear();
        Entry entry = entries.remove(path);
        return wasThere || entry != null && entry.kind().keeps();
    }

    /** Forgets the elements that an array loses. */
    void cut(UpdateStep truncation) {
        int place = truncation.names().length;
        within(truncation.path())
                .values()
                .removeIf(entry -> Elements.index(entry.step.names()[place]) >= truncation.newSize());
    }

    /** @param isNew whether the place may not have existed before */
    boolean hasRoomFor(UpdateStep step, boolean isNew) {
        if (around(step.path()) != null || !within(step.path()).isEmpty()) return false;
        if (step.kind() != UpdateStep.Kind.SET || !isNew) return true;
        String last = lastIn.get(step.parent());
        return last == null || UpdateStep.ascends(last, step.name());
    }

    void put(UpdateStep step, boolean isNew) {
        entries.put(step.path(), new Entry(step));
        if (step.kind() == UpdateStep.Kind.SET && isNew) lastIn.put(step.parent(), step.name());
    }

    List<Fold.Folded.Update> updates() {
        List<UpdateStep> steps = new ArrayList<>(entries.size());
        entries.values().forEach(entry -> steps.add(entry.asStep()));
        return new Steps(steps).updates();
    }
}
