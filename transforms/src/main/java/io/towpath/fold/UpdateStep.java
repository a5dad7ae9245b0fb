package io.towpath.fold;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.Splice;
import java.util.Arrays;

/**
 * What an update does to one place.
 *
 * @param path as in the update, one character per byte
 * @param names the path's parts
 * @param value what is set; null for the other kinds
 * @param newSize what an array is cut to; 0 for the other kinds
 * @param splice of an array; null for the other kinds
 */
record UpdateStep(Kind kind, String path, String[] names, Slice value, int newSize, Splice splice) {
    /** In the order in which the steps of one update are taken. */
    enum Kind {
        TRUNCATE,
        SPLICE,
        SET,
        UNSET;

        /** Whether the step is about an array that is there, and keeps elements of it. */
        boolean keeps() {
            return this == TRUNCATE || this == SPLICE;
        }
    }

    static UpdateStep set(String path, Slice value) {
        return new UpdateStep(Kind.SET, path, names(path), value, 0, null);
    }

    static UpdateStep unset(String path) {
        return new UpdateStep(Kind.UNSET, path, names(path), null, 0, null);
    }

    static UpdateStep truncate(String path, int newSize) {
        return new UpdateStep(Kind.TRUNCATE, path, names(path), null, newSize, null);
    }

    static UpdateStep splice(Splice splice) {
        String path = oneCharacterAByte(splice.path());
        return new UpdateStep(Kind.SPLICE, path, names(path), null, 0, splice);
    }

    /** The last part of the path. */
    String name() {
        return names[names.length - 1];
    }

    /** The path of the place that this one is in; empty at the top. */
    String parent() {
        return path.substring(0, Math.max(0, path.lastIndexOf('.')));
    }

    /** Whether an operator accepts the path: it has no empty name, and none that begins with $. */
    boolean isPlain() {
        for (String name : names) if (name.isEmpty() || name.charAt(0) == '$') return false;
        return true;
    }

    static String oneCharacterAByte(String text) {
        return new String(text.getBytes(UTF_8), ISO_8859_1);
    }

    private static String[] names(String path) {
        return path.split("\\.", -1);
    }

    /**
     * Whether {@code next} certainly comes after {@code last} in the order in which the server's {@code $set} adds fields: numbers by value,
     * all else by bytes. That is not certain for numbers with leading zeros.
     */
    static boolean ascends(String last, String next) {
        if (isDigits(last) && isDigits(next)) {
            if (hasLeadingZero(last) || hasLeadingZero(next)) return false;
            return last.length() != next.length() ? last.length() < next.length() : last.compareTo(next) < 0;
        }
        return Arrays.compareUnsigned(last.getBytes(UTF_8), next.getBytes(UTF_8)) < 0;
    }

    private static boolean isDigits(String name) {
        return !name.isEmpty() && name.chars().allMatch(digit -> digit >= '0' && digit <= '9');
    }

    private static boolean hasLeadingZero(String number) {
        return number.length() > 1 && number.charAt(0) == '0';
    }
}
