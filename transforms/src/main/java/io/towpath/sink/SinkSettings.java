package io.towpath.sink;

import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.TransactionOptions;
import com.mongodb.WriteConcern;
import io.towpath.net.PemFiles;
import io.towpath.sink.ddl.SchemaChanges;
import io.towpath.sink.plain.TopicNamespaceMapper;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.LambdaValidator;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.sink.SinkTask;

/** What {@link MongoSink} needs beyond mongo-kafka's settings. */
record SinkSettings(
        String pipeline,
        int task,
        WriteConcern writeConcern,
        boolean fold,
        int pollRecords,
        int batchRecords,
        long batchBytes,
        Duration putTime,
        Duration retryTimeout,
        int silenceMs,
        double refusedPercent,
        SchemaChanges.Settings schema,
        LogSettings log) {
    static final String PIPELINE = "towpath.pipeline";
    static final String TASK = "towpath.task";
    static final String WRITE_CONCERN = "towpath.write.concern";
    static final String WTIMEOUT = "towpath.wtimeout.ms";
    static final String FOLD = "towpath.fold";
    static final String BATCH_RECORDS = "towpath.batch.records";
    /** Connect's own setting of the connector's consumers. */
    static final String POLL_RECORDS = "consumer.override.max.poll.records";

    static final String POLL_INTERVAL = "consumer.override.max.poll.interval.ms";

    static final String BATCH_BYTES = "towpath.batch.bytes";
    static final String RETRY_TIMEOUT = "towpath.retry.timeout.ms";
    static final String SILENCE = "towpath.silence.ms";
    static final String REFUSED_PERCENT = "towpath.refused.percent";
    static final String DDL_DROP = "towpath.ddl.drop";
    static final String DDL_REPLAY = "towpath.ddl.replay";
    private static final String HOLD = "hold";
    private static final String APPLY = "apply";
    private static final String JOURNAL = "+journal";
    private static final int POLL_INTERVAL_MS = 300_000; // Kafka's default
    /**
     * A put ends within this fraction of the time until Kafka revokes partitions: its last transaction may take a minute more, and the
     * commit two.
     */
    private static final int PUT_SHARE = 5;

    static ConfigDef define(ConfigDef definition) {
        ConfigDef.NonEmptyString nonEmpty = new ConfigDef.NonEmptyString();
        return LogSettings.define(PemFiles.define(definition))
                .define(
                        PIPELINE,
                        Type.STRING,
                        ConfigDef.NO_DEFAULT_VALUE,
                        nonEmpty,
                        Importance.HIGH,
                        "The pipeline's name.")
                .define(TASK, Type.INT, 0, Importance.LOW, "The number of the task, which the connector sets.")
                .define(
                        WRITE_CONCERN,
                        Type.STRING,
                        "majority",
                        nonEmpty,
                        Importance.MEDIUM,
                        "When a batch is written: on that many members (\"1\"), on a \"majority\", with \"+journal\" in their "
                                + "journals; or a tag that the replica set's settings name.")
                .define(
                        WTIMEOUT,
                        Type.INT,
                        60_000,
                        Range.atLeast(0),
                        Importance.LOW,
                        "How long, in ms, a commit waits for the write concern before it is retried.")
                .define(
                        FOLD,
                        Type.BOOLEAN,
                        true,
                        Importance.MEDIUM,
                        "Whether the changes of one document in a transaction become one write.")
                .define(
                        BATCH_RECORDS,
                        Type.INT,
                        50_000,
                        Range.atLeast(1),
                        Importance.LOW,
                        "The most records in one transaction: it takes what is available, and does not wait for more.")
                .define(
                        BATCH_BYTES,
                        Type.LONG,
                        16L << 20,
                        Range.atLeast(1),
                        Importance.LOW,
                        "The most bytes of records in one transaction (a single larger record has a separate one).")
                .define(
                        RETRY_TIMEOUT,
                        Type.INT,
                        30_000,
                        Range.atLeast(0),
                        Importance.LOW,
                        "How long, in ms, a batch is retried before it goes back to Connect, which retries it later. "
                                + "Well below the consumer's max.poll.interval.ms.")
                .define(
                        SILENCE,
                        Type.INT,
                        10_000,
                        Range.atLeast(1),
                        Importance.LOW,
                        "How long, in ms, the destination's primary may be silent before the sink looks for another one; extended "
                                + "automatically where it is only slow. A socketTimeoutMS in the URI overrides this.")
                .define(
                        REFUSED_PERCENT,
                        Type.DOUBLE,
                        1.0,
                        Range.between(0, 100),
                        Importance.MEDIUM,
                        "Stop when the destination refuses more than this share of a batch's records.")
                .define(
                        TopicNamespaceMapper.RENAME,
                        Type.STRING,
                        "{}",
                        LambdaValidator.with(TopicNamespaceMapper::parse, () -> "a JSON object of namespaces"),
                        Importance.MEDIUM,
                        "A JSON object: a namespace at the source to its name at the destination.")
                .define(
                        DDL_DROP,
                        Type.STRING,
                        HOLD,
                        ConfigDef.ValidString.in(HOLD, APPLY),
                        Importance.MEDIUM,
                        "Whether collections that were dropped at the source are dropped (\"apply\"), or wait for a decision (\"hold\").")
                .define(
                        DDL_REPLAY,
                        Type.STRING,
                        "false",
                        LambdaValidator.with(
                                (name, value) -> replayed((String) value),
                                () -> "true, false, or a regular expression of topics"),
                        Importance.LOW,
                        "Whether the log is written to a new destination, of all topics or of some: drops need no decision there.")
                .define(
                        POLL_RECORDS,
                        Type.INT,
                        ConsumerConfig.DEFAULT_MAX_POLL_RECORDS,
                        Range.atLeast(1),
                        Importance.LOW,
                        "How many records a full poll of the connector's consumers brings.")
                .define(
                        POLL_INTERVAL,
                        Type.INT,
                        POLL_INTERVAL_MS,
                        Range.atLeast(1),
                        Importance.LOW,
                        "How long a put may take before Kafka revokes the partitions; a batch ends well before.");
    }

    static SinkSettings of(Map<String, String> properties) {
        AbstractConfig config = new AbstractConfig(define(new ConfigDef()), properties, false);
        return new SinkSettings(
                config.getString(PIPELINE),
                config.getInt(TASK),
                writeConcern(config.getString(WRITE_CONCERN))
                        .withWTimeout(config.getInt(WTIMEOUT), TimeUnit.MILLISECONDS),
                config.getBoolean(FOLD),
                config.getInt(POLL_RECORDS),
                config.getInt(BATCH_RECORDS),
                config.getLong(BATCH_BYTES),
                Duration.ofMillis(config.getInt(POLL_INTERVAL)).dividedBy(PUT_SHARE),
                Duration.ofMillis(config.getInt(RETRY_TIMEOUT)),
                config.getInt(SILENCE),
                config.getDouble(REFUSED_PERCENT),
                new SchemaChanges.Settings(
                        config.getString(DDL_DROP).equals(APPLY),
                        replayed(config.getString(DDL_REPLAY)),
                        topics(properties),
                        TopicNamespaceMapper.parse(
                                TopicNamespaceMapper.RENAME, config.getString(TopicNamespaceMapper.RENAME))),
                LogSettings.of(properties));
    }

    private static Predicate<String> replayed(String topics) {
        if (topics.equals("true")) return topic -> true;
        try {
            return Pattern.compile(topics).asMatchPredicate(); // no topic is called false
        } catch (PatternSyntaxException error) {
            throw new ConfigException(DDL_REPLAY, topics, error.getMessage());
        }
    }

    /** Which topics Connect has the sink read. */
    private static Predicate<String> topics(Map<String, String> properties) {
        String regex = properties.getOrDefault(SinkTask.TOPICS_REGEX_CONFIG, "");
        if (!regex.isBlank()) return Pattern.compile(regex).asMatchPredicate();
        String[] topics =
                properties.getOrDefault(SinkTask.TOPICS_CONFIG, "").trim().split("\\s*,\\s*");
        return Set.copyOf(Arrays.asList(topics))::contains;
    }

    TransactionOptions transactions() {
        return TransactionOptions.builder()
                .readConcern(ReadConcern.LOCAL)
                .readPreference(ReadPreference.primary())
                .writeConcern(writeConcern)
                .build();
    }

    private static WriteConcern writeConcern(String text) {
        boolean journal = text.endsWith(JOURNAL);
        String members = journal ? text.substring(0, text.length() - JOURNAL.length()) : text;
        WriteConcern concern =
                members.matches("[1-9]\\d?") ? new WriteConcern(Integer.parseInt(members)) : new WriteConcern(members);
        return journal ? concern.withJournal(true) : concern;
    }
}
