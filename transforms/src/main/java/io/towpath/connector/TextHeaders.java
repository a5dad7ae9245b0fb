package io.towpath.connector;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;

/** Connect's headers with UTF-8 text in bytes: that of the record contract, and the additional ones of a dead letter. */
public final class TextHeaders {
    private TextHeaders() {}

    public static Headers of(RecordHeaders contract) {
        ConnectHeaders headers = new ConnectHeaders();
        add(headers, RecordHeaders.NAME, contract.text());
        return headers;
    }

    /** The same headers, for an update whose document's row may follow. */
    public static Headers withRowFollows(Headers contract) {
        return changed(contract, RecordHeaders::withRowFollows);
    }

    /** The same headers with another time. */
    public static Headers withTime(Headers contract, ClusterTime time) {
        return changed(contract, text -> RecordHeaders.withTime(text, time));
    }

    private static Headers changed(Headers contract, UnaryOperator<String> change) {
        Headers headers = contract.duplicate();
        String text = text(headers.lastWithName(RecordHeaders.NAME).value());
        headers.remove(RecordHeaders.NAME);
        add(headers, RecordHeaders.NAME, change.apply(text));
        return headers;
    }

    /**
     * @param partition that the record is in; -1 when it is in none
     * @param code the server's error code; 0 when no server refused the record
     */
    public static void addDeadLetter(
            Headers headers, String topic, int partition, long offset, String namespace, int code, String reason) {
        add(headers, "topic", topic);
        add(headers, "partition", Integer.toString(partition));
        add(headers, "offset", Long.toString(offset));
        add(headers, "namespace", namespace);
        add(headers, "code", Integer.toString(code));
        add(headers, "reason", reason);
    }

    private static void add(Headers headers, String name, String text) {
        headers.add(name, text.getBytes(UTF_8), Schema.BYTES_SCHEMA);
    }

    /** The text of the last header of this name. */
    public static Optional<String> read(ConnectRecord<?> record, String name) {
        return Optional.ofNullable(record.headers().lastWithName(name)).map(header -> text(header.value()));
    }

    /** What the record contract says of a record. */
    public static Optional<String> read(ConnectRecord<?> record, RecordHeaders.Part part) {
        return read(record, RecordHeaders.NAME).flatMap(text -> RecordHeaders.part(text, part));
    }

    /** A record may omit the header. Throws {@link io.towpath.record.ContractException} for another version than this one. */
    public static void requireKnown(ConnectRecord<?> record) {
        read(record, RecordHeaders.NAME).ifPresent(RecordHeaders::requireKnown);
    }

    /** Whether the record is an update whose document's row may follow. */
    public static boolean rowFollows(ConnectRecord<?> record) {
        return read(record, RecordHeaders.NAME)
                .filter(RecordHeaders::rowFollows)
                .isPresent();
    }

    private static String text(Object value) {
        return value instanceof byte[] bytes ? new String(bytes, UTF_8) : String.valueOf(value);
    }
}
