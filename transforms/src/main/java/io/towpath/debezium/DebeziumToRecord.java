package io.towpath.debezium;

import io.towpath.connector.LogRecord;
import io.towpath.connector.PluginVersion;
import io.towpath.connector.SourcePartition;
import io.towpath.connector.TextHeaders;
import io.towpath.connector.TopicSettings;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import io.towpath.record.TopicNames;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.bson.BSONException;

/**
 * Converts Debezium's record of a document to a record of the contract. Everything else that Debezium emits keeps its topic and becomes
 * JSON text, and is never dropped: heartbeats move the offsets.
 */
public final class DebeziumToRecord implements Transformation<SourceRecord> {
    public static final String TOPIC_PREFIX = "topic.prefix";
    public static final String WHOLE_DOCUMENTS = "whole.documents";

    private static final ConfigDef CONFIG_DEF = new ConfigDef()
            .define(
                    TOPIC_PREFIX,
                    ConfigDef.Type.STRING,
                    ConfigDef.NO_DEFAULT_VALUE,
                    TopicSettings.PREFIX,
                    ConfigDef.Importance.HIGH,
                    "Topics are named <topic.prefix>.<database>.<collection>.")
            .define(
                    WHOLE_DOCUMENTS,
                    ConfigDef.Type.BOOLEAN,
                    false,
                    ConfigDef.Importance.MEDIUM,
                    "Whether an update becomes the whole document that Debezium looked up (capture.mode=change_streams_update_full).");

    private Map<String, ?> partition = Map.of();
    private final Map<String, String> topics = new HashMap<>();
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
        return apply(record, event(record));
    }

    /** What a record of Debezium's tells of a document; empty when it is about none. */
    public Optional<DebeziumEvent> event(SourceRecord record) {
        try {
            return DebeziumEvent.in(record);
        } catch (DataException error) {
            throw unreadable(record.topic(), error);
        }
    }

    /** @param event what {@link #event} found in the record */
    public SourceRecord apply(SourceRecord record, Optional<DebeziumEvent> event) {
        if (record.value() instanceof byte[]) return record;
        if (record.value() == null) return null; // a tombstone repeats the delete before it
        try {
            return event.isPresent() ? toRecord(record, event.get()) : asText(record);
        } catch (DataException | ContractException | BSONException error) {
            String place = event.flatMap(DebeziumEvent::place).orElse(record.topic());
            throw unreadable(place, error);
        }
    }

    private static DataException unreadable(String place, RuntimeException error) {
        return new DataException("%s: %s".formatted(place, error.getMessage()), error);
    }

    /** Null for an update that changes nothing, and for one whose document was deleted before Debezium looked it up: the delete follows. */
    private SourceRecord toRecord(SourceRecord record, DebeziumEvent event) {
        return switch (event.operation()) {
            case "r", "c" -> document(record, event);
            case "u" -> {
                if (event.isReplace()) yield document(record, event);
                if (wholeDocuments)
                    yield event.document()
                            .map(document -> toRecord(record, event, CanonicalKey.of(document), document))
                            .orElse(null);
                yield event.update()
                        .map(update -> toRecord(record, event, CanonicalKey.of(event.documentKey()), update))
                        .orElse(null);
            }
            case "d" -> toRecord(record, event, CanonicalKey.of(event.documentKey()), null);
            default -> throw new DataException("unknown op '%s' in Debezium's record".formatted(event.operation()));
        };
    }

    private SourceRecord document(SourceRecord record, DebeziumEvent event) {
        byte[] document = event.document()
                .orElseThrow(() ->
                        new DataException("Debezium's record (op %s) has no document".formatted(event.operation())));
        return toRecord(record, event, CanonicalKey.of(document), document);
    }

    private SourceRecord toRecord(SourceRecord record, DebeziumEvent event, byte[] key, byte[] value) {
        return new LogRecord(
                hashed(record.sourcePartition()),
                record.sourceOffset(),
                topics.computeIfAbsent(event.namespace(), namespace -> TopicNames.of(prefix, namespace)),
                null,
                key,
                value,
                TextHeaders.of(new RecordHeaders(event.operation(), event.time(), event.atMs())));
    }

    /** An equal map that knows its hash, by which Connect looks up the partition of every record. */
    private Map<String, ?> hashed(Map<String, ?> sourcePartition) {
        if (!partition.equals(sourcePartition)) partition = new SourcePartition(sourcePartition);
        return partition;
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

    @Override
    public ConfigDef config() {
        return CONFIG_DEF;
    }

    @Override
    public String version() {
        return PluginVersion.current();
    }

    @Override
    public void close() {
        json.close();
    }
}
