package io.towpath.transform;

import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.RecordHeaders;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.bson.BSONException;

/**
 * Turns Debezium's record of a document into a record of the contract. Everything else that Debezium emits keeps its topic and becomes
 * JSON text, never nothing: heartbeats move the offsets.
 */
public final class DebeziumToRecord implements Transformation<SourceRecord> {
    public static final String TOPIC_PREFIX = "topic.prefix";
    public static final String WHOLE_DOCUMENTS = "whole.documents";

    private static final Pattern PREFIX = Pattern.compile("[A-Za-z0-9_-]+");
    private static final Pattern TOPIC = Pattern.compile("[A-Za-z0-9._-]{1,249}");

    private static final ConfigDef CONFIG_DEF = new ConfigDef()
            .define(
                    TOPIC_PREFIX,
                    ConfigDef.Type.STRING,
                    ConfigDef.NO_DEFAULT_VALUE,
                    ConfigDef.LambdaValidator.with(DebeziumToRecord::validatePrefix, () -> "letters, digits, _ and -"),
                    ConfigDef.Importance.HIGH,
                    "Topics are named <topic.prefix>.<database>.<collection>.")
            .define(
                    WHOLE_DOCUMENTS,
                    ConfigDef.Type.BOOLEAN,
                    false,
                    ConfigDef.Importance.MEDIUM,
                    "Whether an update becomes the whole document that Debezium looked up (capture.mode=change_streams_update_full).");

    private final JsonConverter json = new JsonConverter();
    private String prefix;
    private boolean wholeDocuments;

    @Override
    public void configure(Map<String, ?> settings) {
        Map<String, Object> parsed = CONFIG_DEF.parse(settings);
        prefix = (String) parsed.get(TOPIC_PREFIX);
        wholeDocuments = (Boolean) parsed.get(WHOLE_DOCUMENTS);
        json.configure(Map.of("schemas.enable", "false"), false);
    }

    @Override
    public SourceRecord apply(SourceRecord record) {
        if (record.value() instanceof byte[]) return record;
        if (record.value() == null) return null; // a tombstone repeats the delete before it
        Optional<DebeziumEvent> event = Optional.empty();
        try {
            event = DebeziumEvent.in(record);
            return event.isPresent() ? compact(record, event.get()) : asText(record);
        } catch (DataException | BSONException error) {
            String place = event.flatMap(DebeziumEvent::place).orElse(record.topic());
            throw new DataException("%s: %s".formatted(place, error.getMessage()), error);
        }
    }

    private SourceRecord compact(SourceRecord record, DebeziumEvent event) {
        return said(event)
                .map(said -> record.newRecord(
                        topic(event.namespace()),
                        null,
                        Schema.BYTES_SCHEMA,
                        said.key(),
                        Schema.OPTIONAL_BYTES_SCHEMA,
                        said.value(),
                        null,
                        new RecordHeaders(event.operation(), event.time(), event.atMs()).headers()))
                .orElse(null);
    }

    /** Empty for an update of nothing, and for one whose document was gone when it was looked up: its delete follows. */
    private Optional<Said> said(DebeziumEvent event) {
        return switch (event.operation()) {
            case "r", "c" -> Optional.of(document(event));
            case "u" -> {
                if (event.isReplace()) yield Optional.of(document(event));
                if (wholeDocuments) yield event.document().map(Said::of);
                Change.Update update = event.update();
                yield update.isEmpty()
                        ? Optional.empty()
                        : Optional.of(new Said(CanonicalKey.of(event.documentKey()), update.encode()));
            }
            case "d" -> Optional.of(new Said(CanonicalKey.of(event.documentKey()), null));
            default -> throw new DataException("unknown op '%s' in Debezium's record".formatted(event.operation()));
        };
    }

    private static Said document(DebeziumEvent event) {
        return event.document()
                .map(Said::of)
                .orElseThrow(() ->
                        new DataException("Debezium's record (op %s) has no document".formatted(event.operation())));
    }

    private String topic(String namespace) {
        String topic = prefix + "." + namespace;
        if (TOPIC.matcher(topic).matches()) return topic;
        throw new DataException(
                "no topic can be named '%s' (at most 249 letters, digits, dots, _ and -); exclude the collection"
                        .formatted(topic));
    }

    private SourceRecord asText(SourceRecord record) {
        byte[] key = record.key() == null ? null : text(record.topic(), record.keySchema(), record.key());
        return record.newRecord(
                record.topic(),
                record.kafkaPartition(),
                Schema.OPTIONAL_BYTES_SCHEMA,
                key,
                Schema.OPTIONAL_BYTES_SCHEMA,
                text(record.topic(), record.valueSchema(), record.value()),
                record.timestamp(),
                new ConnectHeaders());
    }

    private byte[] text(String topic, Schema schema, Object value) {
        return value instanceof byte[] bytes ? bytes : json.fromConnectData(topic, schema, value);
    }

    private static void validatePrefix(String name, Object value) {
        if (value == null || !PREFIX.matcher((String) value).matches()) {
            throw new ConfigException(
                    name, value, "must be letters, digits, _ and - only: what follows its dot is the database");
        }
    }

    @Override
    public ConfigDef config() {
        return CONFIG_DEF;
    }

    @Override
    public String version() {
        return Optional.ofNullable(getClass().getPackage().getImplementationVersion())
                .orElse("unknown");
    }

    @Override
    public void close() {
        json.close();
    }

    /** Key and value of a record. */
    private record Said(byte[] key, byte[] value) {
        static Said of(byte[] document) {
            return new Said(CanonicalKey.of(document), document);
        }
    }
}
