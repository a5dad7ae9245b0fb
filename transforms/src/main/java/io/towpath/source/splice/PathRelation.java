package io.towpath.source.splice;

import java.util.Arrays;

/** How one path lies to another; both are in bytes. */
enum PathRelation {
    APART,
    SAME,
    CONTAINS,
    WITHIN;

    static PathRelation of(byte[] path, int start, int end, byte[] other, int otherStart, int otherEnd) {
        int common = Arrays.mismatch(path, start, end, other, otherStart, otherEnd);
        if (common < 0) return SAME;
        if (start + common == end) return other[otherStart + common] == '.' ? CONTAINS : APART;
        if (otherStart + common == otherEnd) return path[start + common] == '.' ? WITHIN : APART;
        return APART;
    }
}
