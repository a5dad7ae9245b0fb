package io.towpath.record;

/**
 * Whether bytes are one BSON document, to the last level. Nesting deeper than any server stores is rejected, which bounds the recursion of
 * readers.
 */
public final class WholeBson {
    /** The most that a server can be configured to store (kBSONDepthParameterCeiling in its source; 200 by default). */
    static final int DEEPEST = 250;

    private WholeBson() {}

    /** Throws {@link ContractException} with the place of the damage. Duplicate names and text that is not UTF-8 are not damage. */
    public static void require(byte[] bytes) {
        if (document(bytes, 0, 1) != bytes.length)
            throw new ContractException("BSON is followed by other bytes: %d bytes in all, and its own length is %d"
                    .formatted(bytes.length, new BsonElements(bytes, 0).length()));
    }

    /** The end of the document that begins here. */
    private static int document(byte[] bytes, int at, int depth) {
        if (depth > DEEPEST)
            throw new ContractException("BSON is nested deeper than %d levels at byte %d".formatted(DEEPEST, at));
        BsonElements elements = new BsonElements(bytes, at);
        while (elements.next()) {
            int start = elements.valueStart();
            switch (elements.type()) {
                case BsonElements.DOCUMENT, BsonElements.ARRAY -> document(bytes, start, depth + 1);
                case BsonElements.STRING, BsonElements.CODE, BsonElements.SYMBOL -> text(
                        bytes, start, elements.valueEnd());
                case BsonElements.DB_POINTER -> text(bytes, start, elements.valueEnd() - 12);
                case BsonElements.CODE_WITH_SCOPE -> scoped(bytes, elements, depth);
                case BsonElements.BOOLEAN -> {
                    if (bytes[start] < 0 || bytes[start] > 1) throw BsonElements.damaged(start);
                }
                default -> {
                    // BsonElements has checked that the value is complete
                }
            }
        }
        return at + elements.length();
    }

    /** A length, then that many bytes, the last of them zero. */
    private static void text(byte[] bytes, int start, int end) {
        if (end - start < 5 || bytes[end - 1] != 0) throw BsonElements.damaged(start);
    }

    private static void scoped(byte[] bytes, BsonElements code, int depth) {
        int start = code.valueStart();
        int room = code.valueEnd() - start - 8;
        int length = room < 0 ? 0 : code.int32(4);
        if (length < 1 || length > room || bytes[start + 7 + length] != 0) throw BsonElements.damaged(start);
        int end = document(bytes, start + 8 + length, depth + 1);
        if (end != code.valueEnd()) throw BsonElements.damaged(end);
    }
}
