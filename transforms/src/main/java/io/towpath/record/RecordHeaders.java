package io.towpath.record;

/**
 * The headers of a record, as UTF-8 text in bytes.
 *
 * @param operation r (read), c (created), u (updated or replaced) or d (deleted); a hint
 * @param time the cluster time of the change or of the read
 * @param atMs the source's wall clock, ms since the epoch
 */
public record RecordHeaders(String operation, ClusterTime time, long atMs) {
    public static final String VERSION = "v";
    public static final String OPERATION = "op";
    public static final String TIME = "t";
    public static final String AT = "at";
    /** The version of the record contract. */
    public static final String CONTRACT = "1";
}
