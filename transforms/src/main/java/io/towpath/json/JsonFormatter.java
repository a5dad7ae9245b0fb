package io.towpath.json;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.Change;
import io.towpath.record.Chunks;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import io.towpath.record.RecordHeaders.Part;
import io.towpath.record.SchemaChange;
import java.io.PrintStream;
import java.time.Instant;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.header.Header;
import org.bson.BSONException;

/**
 * Prints records of the log, for {@code kafka-console-consumer --formatter}. Each is one line of six columns with a tab between them:
 * {@code topic-partition@offset}, the source's wall clock (UTC), the cluster time, {@code op}, key and value. Key and value are as
 * {@link JsonDeserializer} shows them. A formatter sees the whole record, so a value is also foreign if it does not fit the key, or if the
 * header has an unknown version. It has no settings.
 */
public final class JsonFormatter implements MessageFormatter {
    private static final String NONE = "-";

    @Override
    public void writeTo(ConsumerRecord<byte[], byte[]> record, PrintStream out) {
        String header = header(record);
        String place = "%s-%d@%d".formatted(record.topic(), record.partition(), record.offset());
        out.println(String.join(
                "\t",
                place,
                at(part(header, Part.AT)),
                part(header, Part.TIME),
                part(header, Part.OPERATION),
                String.valueOf(LogJson.of(record.key())),
                value(record, header)));
    }

    /** Empty when the record has none. */
    private static String header(ConsumerRecord<?, ?> record) {
        Header header = record.headers().lastHeader(RecordHeaders.NAME);
        return header == null || header.value() == null ? "" : new String(header.value(), UTF_8);
    }

    private static String part(String header, Part part) {
        String text = RecordHeaders.part(header, part).orElse("").replaceAll("\\p{Cntrl}", "?");
        return text.isEmpty() ? NONE : text;
    }

    private static String at(String ms) {
        try {
            return Instant.ofEpochMilli(Long.parseLong(ms)).toString();
        } catch (NumberFormatException error) {
            return ms;
        }
    }

    private static String value(ConsumerRecord<byte[], byte[]> record, String header) {
        try {
            require(record, header);
            return record.value() == null ? "null" : LogJson.text(record.value());
        } catch (ContractException | BSONException error) {
            return LogJson.foreign(record.value(), error.getMessage());
        }
    }

    /** Throws {@link ContractException} for a record that breaks the contract. */
    private static void require(ConsumerRecord<byte[], byte[]> record, String header) {
        if (!header.isEmpty()) RecordHeaders.requireKnown(header);
        if (record.key() == null) throw new ContractException("it has no key");
        if (SchemaChange.isKey(record.key())) SchemaChange.decode(record.key(), record.value());
        else if (Chunks.areNamedIn(record.value())) Chunks.decode(record.value());
        else if (!Chunks.isKey(record.key())) Change.decode(record.key(), record.value());
    }
}
