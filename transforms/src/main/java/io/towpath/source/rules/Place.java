package io.towpath.source.rules;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** What happens to a value, and to what is below it: a node of the tree of all paths that rules name. */
final class Place {
    private static final byte DOT = '.';

    private final Action action;
    private final List<Child> children = new ArrayList<>();
    /** Of everything below that no rule names. */
    private final Place below;

    private record Child(byte[] segment, Place place) {}

    private Place(Action action, boolean isNamed) {
        this.action = action;
        this.below = isNamed ? new Place(action, false) : this;
    }

    /** A document of which no path is named yet. */
    static Place ofDocument() {
        return new Place(Action.KEEP, true);
    }

    /** The segments of a path that a rule names. */
    static List<byte[]> segments(String path) {
        return segments(path, segment -> true);
    }

    /** Those segments of a path that count. */
    static List<byte[]> segments(String path, Predicate<String> counts) {
        return Stream.of(path.split("\\."))
                .filter(counts)
                .map(segment -> segment.getBytes(UTF_8))
                .toList();
    }

    Action action() {
        return action;
    }

    /** Whether what is here, and everything below it, stays as it is. */
    boolean keepsAll() {
        return action == Action.KEEP && children.isEmpty();
    }

    /** Names paths, a shorter one before those below it, so that they inherit its action. */
    void name(List<byte[]> path, Action itsAction) {
        Place at = this;
        for (int index = 0; index < path.size(); index++)
            at = at.named(path.get(index), index == path.size() - 1 ? Optional.of(itsAction) : Optional.empty());
    }

    private Place named(byte[] segment, Optional<Action> itsAction) {
        Place known = child(segment, 0, segment.length);
        if (known != below) return known;
        Place named = new Place(itsAction.orElse(action), true);
        children.add(new Child(segment, named));
        return named;
    }

    /** The place of an element here, by the bytes of its name: its segments are those between dots, without numbers. */
    Place of(byte[] bytes, int start, int end) {
        Place at = this;
        for (int from = start; ; ) {
            int to = from;
            boolean isNumber = true;
            while (to < end && bytes[to] != DOT) {
                isNumber &= bytes[to] >= '0' && bytes[to] <= '9';
                to++;
            }
            if (!isNumber || to == from) at = at.child(bytes, from, to);
            if (to == end || at.action == Action.DROP) return at;
            from = to + 1;
        }
    }

    private Place child(byte[] bytes, int start, int end) {
        for (Child child : children)
            if (Arrays.equals(child.segment, 0, child.segment.length, bytes, start, end)) return child.place;
        return below;
    }
}
