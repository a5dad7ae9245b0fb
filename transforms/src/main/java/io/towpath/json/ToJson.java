package io.towpath.json;

import io.towpath.connector.PluginVersion;
import io.towpath.connector.TextHeaders;
import io.towpath.record.Change;
import io.towpath.record.Chunks;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import io.towpath.record.SchemaChange;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.transforms.Transformation;
import org.bson.BSONException;
import org.bson.RawBsonDocument;

/**
 * Converts records of the log to whole documents in JSON, for sinks that know no BSON. The key becomes the {@code _id} as relaxed Extended
 * JSON text, so different {@code _id}s stay different. A document gets {@code __op} and {@code __ts_ms} (the source's wall clock, ms since
 * the epoch) from the header. Throws {@link DataException} for a record that breaks the record contract, and for what {@code fail} names.
 *
 * @param <R> Connect's kind of record
 */
public final class ToJson<R extends ConnectRecord<R>> implements Transformation<R> {
    public static final String FORMAT = "format";
    public static final String DELETES = "deletes";
    public static final String UPDATES = "updates";
    public static final String SCHEMA_CHANGES = "schema.changes";

    /** The forms of a value. */
    enum Format {
        TEXT,
        MAP
    }

    /** What a delete becomes. */
    enum Deletes {
        TOMBSTONE,
        REWRITE
    }

    /** What is done with a record that has no whole document. */
    enum Action {
        FAIL,
        PASS,
        DROP
    }

    private static final ConfigDef CONFIG_DEF = new ConfigDef()
            .define(
                    FORMAT,
                    ConfigDef.Type.STRING,
                    name(Format.TEXT),
                    oneOf(Format.values()),
                    ConfigDef.Importance.HIGH,
                    "The form of a value. text: a string of JSON, for files, HTTP and text columns. map: fields without a schema, for sinks such as Elasticsearch.")
            .define(
                    DELETES,
                    ConfigDef.Type.STRING,
                    name(Deletes.TOMBSTONE),
                    oneOf(Deletes.values()),
                    ConfigDef.Importance.HIGH,
                    "What a delete becomes. tombstone: a record without a value. rewrite: a value of the _id with __deleted = true; documents get __deleted = false.")
            .define(
                    UPDATES,
                    ConfigDef.Type.STRING,
                    name(Action.FAIL),
                    oneOf(Action.values()),
                    ConfigDef.Importance.HIGH,
                    "What is done with an update, which has only what changed. fail: the record is an error; the pipeline's [capture] whole_documents has updates read as documents. drop: compacted log: a whole document follows, after the next pass of `compact`. pass: its $set, $unset, $truncate and $splice, with the _id.")
            .define(
                    SCHEMA_CHANGES,
                    ConfigDef.Type.STRING,
                    name(Action.DROP),
                    oneOf(Action.values()),
                    ConfigDef.Importance.MEDIUM,
                    "What is done with a schema change ([ddl] in the pipeline file). drop: the sink keeps the documents of a collection that was dropped or renamed. fail: the record is an error. pass: its document; the key is {\"ddl\": id}.");

    private Format format;
    private Deletes deletes;
    private Action updates;
    private Action schemaChanges;

    @Override
    public void configure(Map<String, ?> settings) {
        Map<String, Object> parsed = CONFIG_DEF.parse(settings);
        format = chosen(Format.class, parsed.get(FORMAT));
        deletes = chosen(Deletes.class, parsed.get(DELETES));
        updates = chosen(Action.class, parsed.get(UPDATES));
        schemaChanges = chosen(Action.class, parsed.get(SCHEMA_CHANGES));
    }

    @Override
    public R apply(R record) {
        try {
            TextHeaders.requireKnown(record);
            byte[] key = bytes(record.key(), "key");
            byte[] value = record.value() == null ? null : bytes(record.value(), "value");
            if (Chunks.isKey(key)) return null;
            return SchemaChange.isKey(key) ? schemaChange(record, key, value) : change(record, key, value);
        } catch (ContractException | BSONException error) {
            throw new DataException(
                    "topic %s: no record of Towpath's: %s".formatted(record.topic(), error.getMessage()), error);
        }
    }

    private static byte[] bytes(Object part, String name) {
        if (part instanceof byte[] bytes) return bytes;
        throw new ContractException(
                "its %s is not bytes; the connector needs %s.converter=org.apache.kafka.connect.converters.ByteArrayConverter"
                        .formatted(name, name));
    }

    private R change(R record, byte[] key, byte[] value) {
        if (Chunks.areNamedIn(value))
            throw new DataException(
                    "topic %s, partition %s: %s is in chunks, as it is larger than [kafka] max_record, and ToJson does not put them together"
                            .formatted(record.topic(), record.kafkaPartition(), LogJson.ofId(key)));
        Change change = Change.decode(key, value);
        Map<String, Object> fields = new LinkedHashMap<>();
        if (!(change instanceof Change.Document)) fields.putAll(PlainValues.of(new RawBsonDocument(key)));
        if (change instanceof Change.Update && isDropped(record, updates, UPDATES, "an update")) return null;
        if (change instanceof Change.Delete && deletes == Deletes.TOMBSTONE)
            return with(record, LogJson.ofId(key), null, null);
        if (value != null) fields.putAll(PlainValues.of(new RawBsonDocument(value)));
        if (deletes == Deletes.REWRITE) fields.put("__deleted", value == null);
        return with(record, LogJson.ofId(key), fields);
    }

    private R schemaChange(R record, byte[] key, byte[] value) {
        SchemaChange.decode(key, value);
        if (isDropped(record, schemaChanges, SCHEMA_CHANGES, "a schema change")) return null;
        return with(record, LogJson.text(key), PlainValues.of(new RawBsonDocument(value)));
    }

    private static boolean isDropped(ConnectRecord<?> record, Action action, String setting, String kind) {
        if (action != Action.FAIL) return action == Action.DROP;
        throw new DataException("topic %s, partition %s has %s, and the setting %s of ToJson is fail"
                .formatted(record.topic(), record.kafkaPartition(), kind, setting));
    }

    /** With what the header tells. */
    private R with(R record, String key, Map<String, Object> fields) {
        TextHeaders.read(record, RecordHeaders.Part.OPERATION).ifPresent(operation -> fields.put("__op", operation));
        TextHeaders.read(record, RecordHeaders.Part.AT).ifPresent(at -> fields.put("__ts_ms", ms(at)));
        return format == Format.MAP
                ? with(record, key, null, fields)
                : with(record, key, Schema.STRING_SCHEMA, LogJson.text(fields));
    }

    private static long ms(String at) {
        try {
            return Long.parseLong(at);
        } catch (NumberFormatException error) {
            throw new ContractException("its header v has a wall clock that is not a number: '%.20s'".formatted(at));
        }
    }

    private R with(R record, String key, Schema schema, Object value) {
        return record.newRecord(
                record.topic(), record.kafkaPartition(), Schema.STRING_SCHEMA, key, schema, value, record.timestamp());
    }

    private static String name(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }

    private static ConfigDef.Validator oneOf(Enum<?>... values) {
        return ConfigDef.ValidString.in(Arrays.stream(values).map(ToJson::name).toArray(String[]::new));
    }

    private static <E extends Enum<E>> E chosen(Class<E> values, Object name) {
        return Enum.valueOf(values, name.toString().toUpperCase(Locale.ROOT));
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
    public void close() {}
}
