package io.towpath.source.splice;

import java.util.Optional;

/**
 * A place in an array.
 *
 * @param isWhole whether it is the whole element, not a place in it
 */
record ElementPlace(int index, boolean isWhole) {
    /** More digits may not fit into an int. */
    private static final int MOST_DIGITS = 9;

    /** From the rest of a path behind an array's; empty when it does not begin with an index. */
    static Optional<ElementPlace> of(byte[] path, int start, int end) {
        int index = 0;
        int at = start;
        for (; at < end && path[at] >= '0' && path[at] <= '9'; at++) index = 10 * index + path[at] - '0';
        int digits = at - start;
        boolean isIndex = digits > 0 && digits <= MOST_DIGITS && (digits == 1 || path[start] != '0');
        if (!isIndex || at < end && path[at] != '.') return Optional.empty();
        return Optional.of(new ElementPlace(index, at == end));
    }
}
