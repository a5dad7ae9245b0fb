package io.towpath.debezium;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.util.Arrays;
import java.util.Optional;

/**
 * Bytes that travel where Debezium expects JSON text: one Latin-1 character per byte, behind a mark that no JSON begins with. All
 * characters are below U+0100, so the JVM keeps one byte for each.
 */
final class MarkedBytes {
    private static final byte[] MARK = "\u0001bson:".getBytes(ISO_8859_1);
    private static final String MARK_TEXT = new String(MARK, ISO_8859_1);

    private MarkedBytes() {}

    public static String mark(byte[] bytes) {
        byte[] marked = Arrays.copyOf(MARK, MARK.length + bytes.length);
        System.arraycopy(bytes, 0, marked, MARK.length, bytes.length);
        return new String(marked, ISO_8859_1);
    }

    /** The bytes in a marked text; empty when it has no mark. */
    public static Optional<byte[]> unmark(String text) {
        if (!text.startsWith(MARK_TEXT)) return Optional.empty();
        byte[] marked = text.getBytes(ISO_8859_1);
        return Optional.of(Arrays.copyOfRange(marked, MARK.length, marked.length));
    }
}
