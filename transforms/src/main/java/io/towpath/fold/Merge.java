package io.towpath.fold;

import java.util.ArrayList;
import java.util.List;

/**
 * Merges successive updates of one document into as few writes as have the same effect. A place that is written again keeps its turn, as
 * a field keeps its position; a separate write is needed only for a place that may be new and precedes a new neighbour in the server's
 * order, and for one that is set again after its removal.
 */
final class Merge {
    private record Location(int write, MergedWrite.Entry entry) {}

    private final List<MergedWrite> writes = new ArrayList<>();

    /** Whether all the steps can be merged. When not, nothing has changed. */
    boolean takes(Steps steps) {
        return steps.areInOrder() && steps.all().stream().allMatch(this::takes);
    }

    private boolean takes(UpdateStep step) {
        Location location = around(step.path());
        if (location == null) return step.isPlain();
        return switch (location.entry.kind()) {
            case SET, SPLICE -> {
                if (isAt(location, step) && !step.kind().keeps()) yield true;
                Container value = location.entry.open();
                if (value == null || !isAt(location, step)) yield value != null && value.takes(step, depth(location));
                yield value instanceof Elements array
                        && (step.kind() == UpdateStep.Kind.TRUNCATE || array.takes(step.splice()));
            }
            case UNSET -> isAt(location, step) && !step.kind().keeps();
            case TRUNCATE -> step.isPlain() && step.kind() != UpdateStep.Kind.SPLICE;
        };
    }

    void add(Steps steps) {
        steps.all().forEach(this::add);
        writes.removeIf(MergedWrite::isEmpty);
    }

    private void add(UpdateStep step) {
        Location location = around(step.path());
        if (location == null) put(step, 0);
        else if (!isAt(location, step)) addWithin(location, step);
        else
            switch (location.entry.kind()) {
                case SET, SPLICE -> addToValue(location, step);
                case UNSET -> {
                    if (step.kind() == UpdateStep.Kind.SET) put(step, location.write + 1);
                }
                case TRUNCATE -> addToCut(location, step);
            }
    }

    private void addWithin(Location location, UpdateStep step) {
        if (location.entry.kind() != UpdateStep.Kind.TRUNCATE)
            location.entry.open().apply(step, depth(location));
        else put(step, location.write + 1);
    }

    private void addToValue(Location location, UpdateStep step) {
        switch (step.kind()) {
            case SET -> {
                if (location.entry.kind() == UpdateStep.Kind.SET) location.entry.value = step.value();
                else put(step, 0);
            }
            case UNSET -> put(step, 0);
            case TRUNCATE -> ((Elements) location.entry.open()).cut(step.newSize());
            case SPLICE -> ((Elements) location.entry.open()).splice(step.splice());
        }
    }

    private void addToCut(Location location, UpdateStep step) {
        boolean isShorter = step.newSize() <= location.entry.step.newSize();
        if (step.kind() != UpdateStep.Kind.TRUNCATE) {
            put(step, 0);
        } else if (isShorter) {
            // not what was set before: an array that was shorter has its nulls from it
            writes.subList(location.write + 1, writes.size()).forEach(write -> write.cut(step));
            writes.get(location.write).put(step, false);
        } else {
            place(step, false);
        }
    }

    /** Replaces what the writes from {@code first} on do to a place. */
    private void put(UpdateStep step, int first) {
        boolean isNew = true;
        if (!step.kind().keeps())
            for (MergedWrite write : writes.subList(first, writes.size())) if (write.forget(step.path())) isNew = false;
        place(step, isNew);
    }

    /** In the last write, which has no room where it changes this place already, or one around or within it. */
    private void place(UpdateStep step, boolean isNew) {
        writes.removeIf(MergedWrite::isEmpty);
        MergedWrite last = writes.isEmpty() ? null : writes.get(writes.size() - 1);
        if (last == null || !last.hasRoomFor(step, isNew)) writes.add(last = new MergedWrite());
        last.put(step, isNew);
    }

    /** The last change of this place or of one that contains it; null when there is none. */
    private Location around(String path) {
        for (int i = writes.size() - 1; i >= 0; i--) {
            MergedWrite.Entry entry = writes.get(i).around(path);
            if (entry != null) return new Location(i, entry);
        }
        return null;
    }

    private static boolean isAt(Location location, UpdateStep step) {
        return location.entry.step.path().length() == step.path().length();
    }

    private static int depth(Location location) {
        return location.entry.step.names().length;
    }

    int size() {
        return writes.size();
    }

    /** How many places the writes change. */
    int places() {
        return writes.stream().mapToInt(MergedWrite::size).sum();
    }

    /** All writes, in their order. */
    List<Fold.Folded.Update> updates() {
        return writes.stream().flatMap(write -> write.updates().stream()).toList();
    }
}
