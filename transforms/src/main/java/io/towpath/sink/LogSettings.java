package io.towpath.sink;

import io.towpath.connector.TextHeaders;
import io.towpath.record.ClusterTime;
import io.towpath.record.ContractException;
import io.towpath.record.RecordHeaders;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.LambdaValidator;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * What a sink has to know about its log.
 *
 * @param until the last cluster time to apply
 * @param ends of each topic, the offsets in its partitions from which on no schema change is made; empty when all are
 * @param lagMs the topics' {@code min.compaction.lag.ms}; -1 when they are not compacted
 * @param deleteRetentionMs the topics' {@code delete.retention.ms}; -1 when they are not compacted
 * @param isWhole whether the log holds the documents that the source held when capture began
 * @param consumer how to read the log
 */
record LogSettings(
        Optional<ClusterTime> until,
        Map<String, List<Long>> ends,
        long lagMs,
        long deleteRetentionMs,
        boolean isWhole,
        Properties consumer) {
    static final String UNTIL = "towpath.until";
    static final String DDL_ENDS = "towpath.ddl.ends";
    static final String LAG = "towpath.compaction.lag.ms";
    static final String DELETE_RETENTION = "towpath.delete.retention.ms";
    static final String SERVERS = "towpath.log.bootstrap.servers";
    /** As the source connector has it. */
    static final String COPY = "towpath.copy";

    private static final String RANGES = "ranges";
    private static final String NONE = "none";
    /** The settings of Connect's own consumers for this connector, above all how to log in to Kafka. */
    private static final String CONSUMERS = "consumer.override.";

    static ConfigDef define(ConfigDef definition) {
        return definition
                .define(
                        UNTIL,
                        Type.STRING,
                        "",
                        LambdaValidator.with(
                                (name, value) -> until(name, (String) value), () -> "empty, or seconds:ordinal"),
                        Importance.MEDIUM,
                        "The last cluster time to apply, as seconds:ordinal. Records of later changes are skipped; empty: none are.")
                .define(
                        DDL_ENDS,
                        Type.STRING,
                        "{}",
                        LambdaValidator.with(
                                (name, value) -> ends(name, (String) value),
                                () -> "a JSON object: a topic to the offsets of its partitions"),
                        Importance.LOW,
                        "A JSON object: a topic to an offset in each partition, from which on the partition stops at the next schema "
                                + "change. Empty: schema changes are made without an end.")
                .define(
                        LAG,
                        Type.LONG,
                        -1L,
                        Range.atLeast(-1),
                        Importance.MEDIUM,
                        "The topics' min.compaction.lag.ms; -1 when they are not compacted.")
                .define(
                        DELETE_RETENTION,
                        Type.LONG,
                        -1L,
                        Range.atLeast(-1),
                        Importance.MEDIUM,
                        "The topics' delete.retention.ms; -1 when they are not compacted.")
                .define(
                        COPY,
                        Type.STRING,
                        RANGES,
                        ConfigDef.ValidString.in(RANGES, NONE),
                        Importance.MEDIUM,
                        "Whether the source's documents were copied into the log when capture began. With none, an update may rightly find no "
                                + "document at the destination; otherwise such an update becomes a dead letter, unless its row follows.")
                .define(
                        SERVERS,
                        Type.STRING,
                        "",
                        Importance.MEDIUM,
                        "Kafka's address, as workers see it, for reading what is not applied yet, and chunks; needed where topics are compacted, or values are larger than a record may be.");
    }

    static LogSettings of(Map<String, String> properties) {
        AbstractConfig config = new AbstractConfig(define(new ConfigDef()), properties, false);
        Properties consumer = new Properties();
        consumer.putAll(config.originalsWithPrefix(CONSUMERS));
        consumer.put("bootstrap.servers", config.getString(SERVERS));
        LogSettings settings = new LogSettings(
                until(UNTIL, config.getString(UNTIL)),
                ends(DDL_ENDS, config.getString(DDL_ENDS)),
                config.getLong(LAG),
                config.getLong(DELETE_RETENTION),
                config.getString(COPY).equals(RANGES),
                consumer);
        if (settings.lagMs < 0 != settings.deleteRetentionMs < 0)
            throw new ConfigException(
                    "%s and %s go together: both are -1, or neither".formatted(LAG, DELETE_RETENTION));
        if (settings.isCompacted() && config.getString(SERVERS).isEmpty())
            throw new ConfigException(SERVERS, "", "must be given where topics are compacted");
        return settings;
    }

    private static Optional<ClusterTime> until(String name, String text) {
        if (text.isEmpty()) return Optional.empty();
        try {
            if (text.matches("\\d+:\\d{1,10}")) return Optional.of(ClusterTime.parse(text));
        } catch (ContractException error) {
            // reported below
        }
        throw new ConfigException(name, text, "must be seconds:ordinal");
    }

    private static Map<String, List<Long>> ends(String name, String json) {
        try {
            Map<String, List<Long>> ends = new HashMap<>();
            BsonDocument.parse(json)
                    .forEach((topic, offsets) -> ends.put(
                            topic,
                            offsets.asArray().stream()
                                    .map(offset -> offset.asNumber().longValue())
                                    .toList()));
            return ends;
        } catch (RuntimeException error) {
            throw new ConfigException(
                    name, json, "must be a JSON object of offsets, like {\"shop.shop.orders\": [70, 95]}");
        }
    }

    /** Whether a schema change at this offset is not to be made, nor anything behind it applied. */
    boolean endsBefore(TopicPartition partition, long offset) {
        if (ends.isEmpty()) return false;
        List<Long> offsets = ends.getOrDefault(partition.topic(), List.of());
        return partition.partition() >= offsets.size() || offset >= offsets.get(partition.partition());
    }

    boolean isCompacted() {
        return lagMs >= 0;
    }

    /** How long the log keeps a delete after it was appended. */
    long deletesKeptMs() {
        return lagMs + deleteRetentionMs;
    }

    /** Whether a record is not to be applied. Throws {@link DataException} or {@link ContractException} when its time is missing or invalid. */
    boolean skips(SinkRecord record) {
        if (until.isEmpty()) return false;
        String time = TextHeaders.read(record, RecordHeaders.Part.TIME)
                .orElseThrow(() -> new DataException("no record of Towpath's: its headers have no cluster time"));
        return ClusterTime.parse(time).isAfter(until.get());
    }
}
