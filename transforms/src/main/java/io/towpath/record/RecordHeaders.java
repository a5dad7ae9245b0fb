package io.towpath.record;

import java.util.Optional;

/**
 * What a record says besides its key and value, as UTF-8 text in one header: version of the contract, operation, cluster time and wall clock
 * with a space between them, as in {@code 2 u 1700000000:7 1700000000123}. In version 1 each part was a header of its own. An update whose
 * document's row may follow it in the log has {@code row-follows} behind these.
 *
 * @param operation r (read), c (created), u (updated or replaced) or d (deleted), all hints; or {@value SchemaChange#OPERATION}
 * @param time the cluster time of the change or of the read
 * @param atMs the source's wall clock, ms since the epoch
 */
public record RecordHeaders(String operation, ClusterTime time, long atMs) {
    /** The header. */
    public static final String NAME = "v";
    /** The newest version of the record contract; all up to it are read. A record has the lowest version that describes it. */
    public static final int CONTRACT = 4;

    /** The version in which updates may have splices. */
    private static final int SPLICES = 3;
    /** The version in which schema changes are records. */
    private static final int SCHEMA_CHANGES = 4;
    /** The version of all other records. */
    private static final int LOWEST = 2;

    private static final char SEPARATOR = ' ';
    private static final String ROW_FOLLOWS = SEPARATOR + "row-follows";

    /** The parts, in their order in the header. */
    public enum Part {
        VERSION(NAME),
        OPERATION("op"),
        TIME("t"),
        AT("at");

        private final String oldName;

        Part(String oldName) {
            this.oldName = oldName;
        }

        /** Its header's name in version 1. */
        public String oldName() {
            return oldName;
        }
    }

    /** The header's text, for a record without splices. */
    public String text() {
        int version = operation.equals(SchemaChange.OPERATION) ? SCHEMA_CHANGES : LOWEST;
        return "" + version + SEPARATOR + operation + SEPARATOR + time + SEPARATOR + atMs;
    }

    /** The same header for a record that has splices now. */
    public static String withSplices(String text) {
        return SPLICES + text.substring(text.indexOf(SEPARATOR));
    }

    /** The same header for an update whose document may be read after it: then its row follows. */
    public static String withRowFollows(String text) {
        return text + ROW_FOLLOWS;
    }

    /** Whether the header's text is that of an update whose document's row may follow. */
    public static boolean rowFollows(String text) {
        return text.endsWith(ROW_FOLLOWS);
    }

    /** A part of the header's text; empty when it has no such part, as in version 1. */
    public static Optional<String> part(String text, Part part) {
        int start = 0;
        for (int before = 0; before < part.ordinal(); before++) {
            start = text.indexOf(SEPARATOR, start) + 1;
            if (start == 0) return Optional.empty();
        }
        int end = text.indexOf(SEPARATOR, start);
        return Optional.of(text.substring(start, end < 0 ? text.length() : end));
    }
}
