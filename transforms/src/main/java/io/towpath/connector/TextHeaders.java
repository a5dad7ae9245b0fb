package io.towpath.connector;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.RecordHeaders;
import java.util.Optional;
import java.util.stream.IntStream;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;

/** Connect's headers with UTF-8 text in bytes: those of the record contract, and the additional ones of a dead letter. */
public final class TextHeaders {
    private static final String[] LETTERS = // every record has two
            IntStream.range(0, 128).mapToObj(Character::toString).toArray(String[]::new);

    private TextHeaders() {}

    public static Headers of(RecordHeaders contract) {
        ConnectHeaders headers = new ConnectHeaders();
        add(headers, RecordHeaders.VERSION, RecordHeaders.CONTRACT);
        add(headers, RecordHeaders.OPERATION, contract.operation());
        add(headers, RecordHeaders.TIME, contract.time().toString());
        add(headers, RecordHeaders.AT, Long.toString(contract.atMs()));
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

    private static String text(Object value) {
        if (!(value instanceof byte[] bytes)) return String.valueOf(value);
        return bytes.length == 1 && bytes[0] >= 0 ? LETTERS[bytes[0]] : new String(bytes, UTF_8);
    }
}
