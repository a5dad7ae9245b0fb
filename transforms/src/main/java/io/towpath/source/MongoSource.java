package io.towpath.source;

import io.debezium.connector.mongodb.MongoDbConnector;
import io.towpath.connector.KeyPartitioner;
import io.towpath.connector.PluginVersion;
import io.towpath.connector.Requirements;
import io.towpath.debezium.CursorPipeline;
import io.towpath.debezium.RawDocuments;
import io.towpath.debezium.SourceCluster;
import io.towpath.source.progress.CopyShare;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;

/**
 * Debezium's MongoDB connector with its own initial copy, in one linear history per document: rows of the copy, then the stream
 * without what the rows hold already, and re-read documents in between.
 */
public final class MongoSource extends MongoDbConnector {
    private static final String TASKS_MAX = "tasks.max";
    private static final String HEARTBEATS = "heartbeat.interval.ms";
    private static final String PARTITIONER = "producer.override.partitioner.class";

    private int tasks = 1;

    @Override
    public void start(Map<String, String> configuration) {
        boolean copies = SourceSettings.of(configuration).copies();
        tasks = copies ? Integer.parseInt(configuration.getOrDefault(TASKS_MAX, "1")) : 1;
        super.start(configuration);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return TowpathSourceTask.class;
    }

    /** Debezium's single configuration for every task, with its share of the copy. */
    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return super.taskConfigs(1).stream()
                .flatMap(one -> CopyShare.configurations(one, Math.min(tasks, maxTasks)).stream())
                .toList();
    }

    @Override
    public ConfigDef config() {
        return SourceSettings.define(new ConfigDef(super.config()));
    }

    @Override
    public Config validate(Map<String, String> configuration) {
        Requirements requirements = requirements(configuration);
        // Debezium omits settings that it defines, and Connect fails on that when there is an error
        Map<String, ConfigValue> values = new LinkedHashMap<>(config().validateAll(configuration));
        // it also connects, and our hook throws where it cannot work
        if (requirements.areMet())
            super.validate(configuration).configValues().forEach(value -> values.put(value.name(), value));
        return new Config(requirements.addedTo(values.values()));
    }

    /** What it needs of the settings of Connect and of Debezium. */
    static Requirements requirements(Map<String, String> configuration) {
        Requirements requirements = new Requirements(configuration)
                .inherited(DebeziumSettings.RULES)
                .bytes()
                .set("exactly.once.support", List.of("required"), DebeziumSettings.WHOLE_TRANSACTION)
                .set(
                        DebeziumSettings.HOOK,
                        List.of(RawDocuments.class.getName()),
                        "documents would lose their bytes and types")
                .set(
                        PARTITIONER,
                        List.of(KeyPartitioner.class.getName()),
                        "a worker's own partitioner could separate the changes of one document")
                .passes(
                        CursorPipeline.SETTING,
                        () -> CursorPipeline.require(configuration.get(CursorPipeline.SETTING)));
        requirements.passes(HEARTBEATS, () -> requireHeartbeats(configuration.get(HEARTBEATS)));
        for (String key : SourceCluster.FILTERS)
            requirements.passes(key, () -> SourceCluster.requireExpressions(configuration.get(key)));
        if (Boolean.parseBoolean(configuration.get(SourceSettings.WHOLE_DOCUMENTS)))
            requirements.unset(
                    "capture.mode",
                    List.of("change_streams_update_full", "change_streams_update_full_with_pre_image"),
                    "%s=true needs the documents that Debezium looks up".formatted(SourceSettings.WHOLE_DOCUMENTS));
        return requirements;
    }

    /** Debezium's default is 0: no heartbeats. */
    private static void requireHeartbeats(String interval) {
        if (interval != null && Long.parseLong(interval.trim()) > 0) return;
        throw new ConfigException(
                ("%s is %s; set it to more than 0, such as 150: without heartbeats the position stays at the last change of these collections, "
                                + "and leaves the source's oplog when they do not change for long")
                        .formatted(HEARTBEATS, interval == null ? "not set" : "'%s'".formatted(interval)));
    }

    @Override
    public String version() {
        return PluginVersion.current();
    }
}
