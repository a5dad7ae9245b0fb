package io.towpath.source.splice;

import java.util.Arrays;

/** The elements of an array, each as a hash of 128 bits. */
final class ElementHashes {
    /** Both halves of the hash of an element that is not known; no element has it. */
    private static final long UNKNOWN = 0;
    /** Of this object and its array, without the hashes. */
    private static final int OVERHEAD = 40;

    /** Two for each element. */
    private long[] halves;

    private int length;

    ElementHashes(int capacity) {
        halves = new long[2 * capacity];
    }

    int length() {
        return length;
    }

    /** Whether an element equals one of another array. */
    boolean matches(int index, ElementHashes other, int otherIndex) {
        return halves[2 * index] == other.halves[2 * otherIndex]
                && halves[2 * index + 1] == other.halves[2 * otherIndex + 1];
    }

    void append(long first, long second) {
        if (2 * length == halves.length) halves = Arrays.copyOf(halves, 2 * (length + length / 2 + 8));
        set(length++, first, second);
    }

    void set(int index, long first, long second) {
        halves[2 * index] = first;
        halves[2 * index + 1] = first == UNKNOWN && second == UNKNOWN ? UNKNOWN + 1 : second;
    }

    void setUnknown(int index) {
        halves[2 * index] = UNKNOWN;
        halves[2 * index + 1] = UNKNOWN;
    }

    void cut(int newLength) {
        length = newLength;
    }

    /** Without room for more. */
    ElementHashes trimmed() {
        halves = Arrays.copyOf(halves, 2 * length);
        return this;
    }

    /** About how much memory it takes. */
    long bytes() {
        return OVERHEAD + (long) Long.BYTES * halves.length;
    }
}
