package io.towpath.source;

import io.towpath.connector.TopicSettings;
import io.towpath.connector.WorkerHeap;
import io.towpath.net.PemFiles;
import io.towpath.source.copy.CopySettings;
import io.towpath.source.reread.RereadSettings;
import io.towpath.source.rules.Rules;
import java.util.Map;
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

/** The settings that MongoSource adds to Debezium's. */
public record SourceSettings(
        String name,
        boolean wholeDocuments,
        boolean copies,
        CopySettings copy,
        RereadSettings rereads,
        String deadLettersTopic,
        String resnapshot,
        Predicate<String> isResnapshot,
        int largestRequest,
        String compression,
        long spliceCacheBytes,
        boolean ddl,
        boolean createsTopics,
        Rules rules) {
    private static final String NAME = "towpath.name";
    static final String WHOLE_DOCUMENTS = "towpath.whole.documents";
    private static final String COPY = "towpath.copy";
    private static final String DEAD_LETTERS_TOPIC = "towpath.dead.letters.topic";
    private static final String RESNAPSHOT = "towpath.resnapshot";
    private static final String RESNAPSHOT_ONLY = "towpath.resnapshot.only";
    private static final String SPLICE_CACHE_BYTES = "towpath.splice.cache.bytes";
    private static final String DDL = "towpath.ddl";
    private static final String RULES = "towpath.rules";
    private static final String RULES_KEY = "towpath.rules.key";
    /** Connect's own setting of the connector's producer. */
    private static final String LARGEST_REQUEST = "producer.override.max.request.size";

    /** The same. What the worker sets for all producers is not known here. */
    private static final String COMPRESSION = "producer.override.compression.type";

    /** Connect's own setting. Without it, Connect creates no topic for the connector. */
    private static final String CREATED_PARTITIONS = "topic.creation.default.partitions";

    private static final String RANGES = "ranges";
    private static final String NONE = "none";

    static ConfigDef define(ConfigDef definition) {
        return WorkerHeap.define(RereadSettings.define(CopySettings.define(PemFiles.define(definition))))
                .define(
                        NAME,
                        Type.STRING,
                        ConfigDef.NO_DEFAULT_VALUE,
                        TopicSettings.PREFIX,
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
                        DEAD_LETTERS_TOPIC,
                        Type.STRING,
                        "",
                        TopicSettings.TOPIC,
                        Importance.MEDIUM,
                        "The dead-letter topic for records whose key is too large for their topic; empty: the task stops.")
                .define(
                        RESNAPSHOT,
                        Type.STRING,
                        "",
                        Importance.LOW,
                        "The name of a resnapshot; a new name re-reads all documents, once.")
                .define(
                        RESNAPSHOT_ONLY,
                        Type.STRING,
                        ".*",
                        LambdaValidator.with(
                                SourceSettings::validateExpression, () -> "a regular expression of Java's"),
                        Importance.LOW,
                        "A regular expression for the namespaces that the resnapshot re-reads.")
                .define(
                        SPLICE_CACHE_BYTES,
                        Type.LONG,
                        0L,
                        Range.atLeast(0),
                        Importance.MEDIUM,
                        "How much memory the arrays that are remembered for splices may take; 0: there are no splices.")
                .define(DDL, Type.BOOLEAN, false, Importance.MEDIUM, "Whether schema changes are records of the log.")
                .define(
                        RULES,
                        Type.STRING,
                        "",
                        LambdaValidator.with(SourceSettings::validateRules, () -> "rules as JSON"),
                        Importance.MEDIUM,
                        "What of documents may leave the source, as docs/design/rules.md describes; empty: everything.")
                .define(
                        RULES_KEY,
                        Type.PASSWORD,
                        "",
                        Importance.MEDIUM,
                        "The key of rules that hash, in hexadecimal digits; empty for none.")
                .define(
                        LARGEST_REQUEST,
                        Type.INT,
                        1 << 20,
                        Range.atLeast(1),
                        Importance.MEDIUM,
                        "The largest record that the connector's producer sends; a larger value is cut into chunks.")
                .define(
                        COMPRESSION,
                        Type.STRING,
                        NONE,
                        ValidString.in(NONE, "gzip", "snappy", "lz4", "zstd"),
                        Importance.MEDIUM,
                        "How the connector's producer compresses; a value that is larger than its topic takes even so is cut into chunks.");
    }

    private static void validateExpression(String name, Object value) {
        try {
            Pattern.compile((String) value);
        } catch (PatternSyntaxException error) {
            throw new ConfigException(name, value, "is no regular expression: " + error.getMessage());
        }
    }

    private static void validateRules(String name, Object value) {
        try {
            Rules.of((String) value, "00"); // the key is a reference that Connect resolves later
        } catch (IllegalArgumentException error) {
            throw new ConfigException(name, value, "cannot be used: " + error.getMessage());
        }
    }

    static SourceSettings of(Map<String, String> configuration) {
        AbstractConfig parsed = new AbstractConfig(define(new ConfigDef()), configuration, false);
        return new SourceSettings(
                parsed.getString(NAME),
                parsed.getBoolean(WHOLE_DOCUMENTS),
                parsed.getString(COPY).equals(RANGES),
                CopySettings.of(parsed),
                RereadSettings.of(parsed),
                parsed.getString(DEAD_LETTERS_TOPIC),
                parsed.getString(RESNAPSHOT),
                Pattern.compile(parsed.getString(RESNAPSHOT_ONLY)).asMatchPredicate(),
                parsed.getInt(LARGEST_REQUEST),
                parsed.getString(COMPRESSION),
                parsed.getLong(SPLICE_CACHE_BYTES),
                parsed.getBoolean(DDL),
                configuration.containsKey(CREATED_PARTITIONS),
                Rules.of(parsed.getString(RULES), parsed.getPassword(RULES_KEY).value()));
    }
}
