package io.towpath.source;

import com.mongodb.ReadPreference;
import io.towpath.record.TopicNames;
import io.towpath.tls.PemFiles;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.LambdaValidator;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/** The settings of MongoSource beyond Debezium's. */
record SourceSettings(
        String name,
        boolean wholeDocuments,
        boolean copies,
        int threads,
        long rangeBytes,
        ReadPreference readPreference,
        long documentsPerSecond,
        long bytesPerSecond,
        String requestsTopic,
        Properties requestsConsumer,
        String deadLettersTopic,
        String resnapshot,
        Predicate<String> isResnapshot,
        int largestRequest) {
    static final String NAME = "towpath.name";
    static final String WHOLE_DOCUMENTS = "towpath.whole.documents";
    static final String COPY = "towpath.copy";
    static final String THREADS = "towpath.copy.threads";
    static final String RANGE_BYTES = "towpath.copy.range.bytes";
    static final String READ_PREFERENCE = "towpath.copy.read.preference";
    static final String DOCUMENTS_PER_SECOND = "towpath.copy.documents.per.second";
    static final String BYTES_PER_SECOND = "towpath.copy.bytes.per.second";
    static final String REQUESTS_TOPIC = "towpath.requests.topic";
    static final String REQUESTS_SERVERS = "towpath.requests.bootstrap.servers";
    /** What Connect's own consumers for this connector are given, above all how to log in at Kafka. */
    private static final String CONSUMERS = "consumer.override.";

    static final String DEAD_LETTERS_TOPIC = "towpath.dead.letters.topic";
    static final String RESNAPSHOT = "towpath.resnapshot";
    static final String RESNAPSHOT_ONLY = "towpath.resnapshot.only";

    /** Connect's own setting of the connector's producer. */
    private static final String LARGEST_REQUEST = "producer.override.max.request.size";

    private static final String RANGES = "ranges";
    private static final String NONE = "none";

    /** Adds these settings to a definition. */
    static ConfigDef define(ConfigDef definition) {
        return PemFiles.define(definition)
                .define(
                        NAME,
                        Type.STRING,
                        ConfigDef.NO_DEFAULT_VALUE,
                        TopicNames.PREFIX,
                        Importance.HIGH,
                        "Topics are named <towpath.name>.<database>.<collection>.")
                .define(
                        WHOLE_DOCUMENTS,
                        Type.BOOLEAN,
                        false,
                        Importance.MEDIUM,
                        "Whether an update becomes the whole document that Debezium looked up.")
                .define(
                        COPY,
                        Type.STRING,
                        RANGES,
                        ValidString.in(RANGES, NONE),
                        Importance.HIGH,
                        "Whether collections are copied, in ranges of _ids, before the stream.")
                .define(
                        THREADS,
                        Type.INT,
                        4,
                        Range.between(1, 64),
                        Importance.MEDIUM,
                        "How many threads read ranges at once.")
                .define(
                        RANGE_BYTES,
                        Type.LONG,
                        16L << 20,
                        Range.atLeast(1),
                        Importance.LOW,
                        "About how many bytes a range holds; a collection has at most 1,024 ranges.")
                .define(
                        READ_PREFERENCE,
                        Type.STRING,
                        "primary",
                        ValidString.in("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"),
                        Importance.MEDIUM,
                        "Which members the copy reads from.")
                .define(
                        DOCUMENTS_PER_SECOND,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.MEDIUM,
                        "At most so many documents a second are copied; 0: no limit.")
                .define(
                        BYTES_PER_SECOND,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.MEDIUM,
                        "At most so many bytes a second are copied; 0: no limit.")
                .define(
                        REQUESTS_TOPIC,
                        Type.STRING,
                        "",
                        TopicNames.TOPIC,
                        Importance.MEDIUM,
                        "The topic of requests to read documents again.")
                .define(
                        REQUESTS_SERVERS,
                        Type.STRING,
                        "",
                        Importance.MEDIUM,
                        "Kafka's address, as workers see it, for reading requests; empty: none are read.")
                .define(
                        DEAD_LETTERS_TOPIC,
                        Type.STRING,
                        "",
                        TopicNames.TOPIC,
                        Importance.MEDIUM,
                        "Where documents are named whose records are too large for their topic; empty: the task stops.")
                .define(
                        RESNAPSHOT,
                        Type.STRING,
                        "",
                        Importance.LOW,
                        "Another name than before: all documents are read again, once.")
                .define(
                        RESNAPSHOT_ONLY,
                        Type.STRING,
                        ".*",
                        LambdaValidator.with(
                                SourceSettings::validateExpression, () -> "a regular expression of Java's"),
                        Importance.LOW,
                        "An expression for the namespaces of which documents are read again then.")
                .define(
                        LARGEST_REQUEST,
                        Type.INT,
                        1 << 20,
                        Range.atLeast(1),
                        Importance.MEDIUM,
                        "The largest record that the connector's producer sends; larger ones become dead letters.");
    }

    private static void validateExpression(String name, Object value) {
        try {
            Pattern.compile((String) value);
        } catch (PatternSyntaxException error) {
            throw new ConfigException(name, value, "is no regular expression: " + error.getMessage());
        }
    }

    static SourceSettings of(Map<String, String> configuration) {
        AbstractConfig parsed = new AbstractConfig(define(new ConfigDef()), configuration, false);
        Properties consumer = new Properties();
        consumer.putAll(parsed.originalsWithPrefix(CONSUMERS));
        consumer.put("bootstrap.servers", parsed.getString(REQUESTS_SERVERS));
        return new SourceSettings(
                parsed.getString(NAME),
                parsed.getBoolean(WHOLE_DOCUMENTS),
                parsed.getString(COPY).equals(RANGES),
                parsed.getInt(THREADS),
                parsed.getLong(RANGE_BYTES),
                ReadPreference.valueOf(parsed.getString(READ_PREFERENCE)),
                parsed.getLong(DOCUMENTS_PER_SECOND),
                parsed.getLong(BYTES_PER_SECOND),
                parsed.getString(REQUESTS_TOPIC),
                consumer,
                parsed.getString(DEAD_LETTERS_TOPIC),
                parsed.getString(RESNAPSHOT),
                Pattern.compile(parsed.getString(RESNAPSHOT_ONLY)).asMatchPredicate(),
                parsed.getInt(LARGEST_REQUEST));
    }

    boolean readsRequests() {
        return !requestsTopic.isEmpty()
                && !requestsConsumer.getProperty("bootstrap.servers").isEmpty();
    }

    /** Debezium's own configuration: no first copy of its own, and where its stream begins. */
    static Map<String, String> debezium(Map<String, String> configuration, long startBits) {
        Map<String, String> result = new HashMap<>(configuration);
        result.keySet().removeIf(key -> key.startsWith("towpath.") && !key.startsWith(PemFiles.PREFIX));
        result.put("snapshot.mode", "no_data");
        result.put("capture.start.op.time", Long.toString(startBits));
        return result;
    }
}
