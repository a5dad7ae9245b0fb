package io.towpath.debezium;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.util.Optional;

/**
 * A BSON document that travels where Debezium expects JSON text: one Latin-1 character per byte. It ends with the character 0, as no JSON
 * does. All characters are below U+0100, so the JVM keeps one byte for each.
 */
final class BsonText {
    private BsonText() {}

    static String of(byte[] document) {
        return of(document, 0, document.length);
    }

    /** The document of this length that begins at a place in the bytes. */
    static String of(byte[] bytes, int at, int length) {
        return new String(bytes, at, length, ISO_8859_1);
    }

    /** The document in a text; empty when that is JSON. */
    static Optional<byte[]> document(String text) {
        boolean isBson = !text.isEmpty() && text.charAt(text.length() - 1) == 0;
        return isBson ? Optional.of(text.getBytes(ISO_8859_1)) : Optional.empty();
    }
}
