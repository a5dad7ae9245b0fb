package io.towpath.source.splice;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * How an array became another. Walks both at once; where they differ, it looks for the nearest place at which they agree again: after
 * elements that are gone, that are new, or that were replaced.
 */
final class ArrayDiff {
    /** Of one splice; more would take their reader long. */
    static final int MOST_EDITS = 250;

    private static final int COMPARISONS_PER_ELEMENT = 16;
    private static final int LEAST_COMPARISONS = 1_000;

    /**
     * Elements that others replace.
     *
     * @param at its place in the array before
     * @param from the place of what was inserted, in the array now
     */
    record Replacement(int at, int deleted, int from, int inserted) {}

    private final ElementHashes before;
    private final ElementHashes now;
    private final List<Replacement> replacements = new ArrayList<>();
    private int beforeEnd;
    private int nowEnd;
    private long comparisons;

    private ArrayDiff(ElementHashes before, ElementHashes now) {
        this.before = before;
        this.now = now;
        this.beforeEnd = before.length();
        this.nowEnd = now.length();
        this.comparisons = (long) COMPARISONS_PER_ELEMENT * (beforeEnd + nowEnd) + LEAST_COMPARISONS;
    }

    /** In ascending order, none next to another; empty when the arrays have too little in common. */
    static Optional<List<Replacement>> between(ElementHashes before, ElementHashes now) {
        ArrayDiff diff = new ArrayDiff(before, now);
        return diff.walk() ? Optional.of(diff.replacements) : Optional.empty();
    }

    private boolean walk() {
        int at = 0;
        while (at < beforeEnd && at < nowEnd && matches(at, at)) at++;
        while (beforeEnd > at && nowEnd > at && matches(beforeEnd - 1, nowEnd - 1)) {
            beforeEnd--;
            nowEnd--;
        }
        int from = at;
        while (at < beforeEnd && from < nowEnd) {
            if (matches(at, from)) {
                at++;
                from++;
                continue;
            }
            Replacement next = next(at, from);
            if (comparisons < 0 || !add(next)) return false;
            at += next.deleted;
            from += next.inserted;
        }
        return at == beforeEnd && from == nowEnd || add(new Replacement(at, beforeEnd - at, from, nowEnd - from));
    }

    private Replacement next(int at, int from) {
        int left = beforeEnd - at;
        int nowLeft = nowEnd - from;
        for (int count = 1; (count < left || count < nowLeft) && comparisons >= 0; count++) {
            if (count < left && matches(at + count, from)) return new Replacement(at, count, from, 0);
            if (count < nowLeft && matches(at, from + count)) return new Replacement(at, 0, from, count);
            if (count < left && count < nowLeft && matches(at + count, from + count))
                return new Replacement(at, count, from, count);
        }
        return new Replacement(at, 1, from, 1);
    }

    /** Joins it with the last one if they are adjacent. Returns false when there are too many. */
    private boolean add(Replacement next) {
        int last = replacements.size() - 1;
        if (last >= 0) {
            Replacement previous = replacements.get(last);
            if (previous.at + previous.deleted == next.at && previous.from + previous.inserted == next.from) {
                int deleted = previous.deleted + next.deleted;
                replacements.set(
                        last, new Replacement(previous.at, deleted, previous.from, previous.inserted + next.inserted));
                return true;
            }
        }
        return replacements.add(next) && replacements.size() <= MOST_EDITS;
    }

    private boolean matches(int at, int from) {
        comparisons--;
        return before.matches(at, now, from);
    }
}
