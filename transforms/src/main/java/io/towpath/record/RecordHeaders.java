package io.towpath.record;

import java.util.Optional;

/**
 * What a record says next to its key and value, as UTF-8 text in one header: version of the contract, operation, cluster time and wall clock
 * with a space between them, as in {@code 1 u 1700000000:7 1700000000123}. An update whose document's row may follow it in the log has
 * {@code row-follows} behind these.
 *
 * @param operation r (read), c (created), u (updated or replaced) or d (deleted), all hints; or {@value SchemaChange#OPERATION}
 * @param time the cluster time of the change or of the read
 * @param atMs the source's wall clock, ms since the epoch
 */
public record RecordHeaders(String operation, ClusterTime time, long atMs) {
    /** The header. */
    public static final String NAME = "v";

    /** The version of the record contract; no reader may take a record of another one. */
    private static final String CONTRACT = "1";

    private static final char SEPARATOR = ' ';
    private static final String ROW_FOLLOWS = SEPARATOR + "row-follows";

    /** The parts, in their order in the header. More may follow. */
    public enum Part {
        VERSION,
        OPERATION,
        TIME,
        AT
    }

    /** The header's text. */
    public String text() {
        return CONTRACT + SEPARATOR + operation + SEPARATOR + time + SEPARATOR + atMs;
    }

    /** The same header for an update whose document may be read after it: then its row follows. */
    public static String withRowFollows(String text) {
        return text + ROW_FOLLOWS;
    }

    /** The same header with another time. */
    public static String withTime(String text, ClusterTime time) {
        String before = part(text, Part.TIME).orElseThrow();
        return text.replaceFirst(SEPARATOR + before + SEPARATOR, "" + SEPARATOR + time + SEPARATOR);
    }

    /** Whether the header's text is that of an update whose document's row may follow. */
    public static boolean rowFollows(String text) {
        return text.endsWith(ROW_FOLLOWS) || text.contains(ROW_FOLLOWS + SEPARATOR);
    }

    /** A part of the header's text; empty when it has no such part. */
    public static Optional<String> part(String text, Part part) {
        int start = 0;
        for (int before = 0; before < part.ordinal(); before++) {
            start = text.indexOf(SEPARATOR, start) + 1;
            if (start == 0) return Optional.empty();
        }
        int end = text.indexOf(SEPARATOR, start);
        return Optional.of(text.substring(start, end < 0 ? text.length() : end));
    }

    /** Throws {@link ContractException} for a header's text with another version: it is not known what such a record means. */
    public static void requireKnown(String text) {
        String version = part(text, Part.VERSION).orElseThrow();
        if (version.equals(CONTRACT)) return;
        throw new ContractException(
                "its header v has version '%.20s', and this version of Towpath knows version %s of the record contract: a later one wrote it"
                        .formatted(version, CONTRACT));
    }
}
