package io.towpath.record;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;

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

    public Headers headers() {
        ConnectHeaders headers = new ConnectHeaders();
        add(headers, VERSION, CONTRACT);
        add(headers, OPERATION, operation);
        add(headers, TIME, time.toString());
        add(headers, AT, Long.toString(atMs));
        return headers;
    }

    private static void add(Headers headers, String name, String text) {
        headers.add(name, text.getBytes(UTF_8), Schema.BYTES_SCHEMA);
    }
}
