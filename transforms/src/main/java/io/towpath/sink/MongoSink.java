package io.towpath.sink;

import com.mongodb.kafka.connect.MongoSinkConnector;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.connector.PluginVersion;
import io.towpath.connector.Requirements;
import io.towpath.net.PemFiles;
import io.towpath.sink.plain.TopicNamespaceMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;

/**
 * mongo-kafka's sink connector with our own tasks, which apply each record of the contract exactly once: one transaction writes a batch
 * and its offsets.
 */
public final class MongoSink extends MongoSinkConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return TowpathSinkTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        List<Map<String, String>> numbered = new ArrayList<>();
        for (Map<String, String> settings : super.taskConfigs(maxTasks)) {
            Map<String, String> own = new HashMap<>(settings);
            own.put(SinkSettings.TASK, Integer.toString(numbered.size()));
            numbered.add(own);
        }
        return numbered;
    }

    @Override
    public ConfigDef config() {
        return new Definition();
    }

    @Override
    public Config validate(Map<String, String> settings) {
        Requirements requirements = requirements(settings);
        boolean areOursValid = SinkSettings.define(new ConfigDef()).validate(settings).stream()
                .allMatch(value -> value.errorMessages().isEmpty());
        if (areOursValid) requirements.passes(LogSettings.LAG, () -> LogSettings.of(settings));
        boolean canConnect = areOursValid && requirements.areMet();
        List<ConfigValue> values = canConnect ? connected(settings).configValues() : config().validate(settings);
        return new Config(requirements.addedTo(values));
    }

    /** Checks the settings themselves and, where they are valid, the destination. */
    private Config connected(Map<String, String> settings) {
        if (PemFiles.of(settings).isNone()) return super.validate(settings);
        Config config = new Config(config().validate(settings));
        Destination.check(settings, config);
        return config;
    }

    /** What Connect, mongo-kafka and Connect's consumers need so that the sink reads the whole log once. */
    static Requirements requirements(Map<String, String> settings) {
        return new Requirements(settings)
                .inherited(MongoKafkaSettings.RULES)
                .bytes()
                .set(
                        "consumer.override.isolation.level",
                        List.of("read_committed"),
                        "records of transactions that were aborted would be applied")
                .set(
                        "consumer.override.auto.offset.reset",
                        List.of("earliest", "none"),
                        "records that are in the log already would be skipped");
    }

    @Override
    public String version() {
        return PluginVersion.current();
    }

    /** mongo-kafka's definition, whose own checks of topics stay, plus ours. */
    private static final class Definition extends ConfigDef {
        private static final ConfigDef OURS = SinkSettings.define(new ConfigDef());

        Definition() {
            super(SinkSettings.define(new ConfigDef(MongoSinkConfig.CONFIG)));
        }

        @Override
        public Map<String, ConfigValue> validateAll(Map<String, String> properties) {
            Map<String, ConfigValue> ours = OURS.validateAll(properties);
            // mongo-kafka's own checks create our namespace mapper, which throws where a rename is wrong
            boolean isRenameValid =
                    ours.get(TopicNamespaceMapper.RENAME).errorMessages().isEmpty();
            ConfigDef theirs = isRenameValid ? MongoSinkConfig.CONFIG : new ConfigDef(MongoSinkConfig.CONFIG);
            Map<String, ConfigValue> values = theirs.validateAll(properties);
            values.putAll(ours);
            return values;
        }
    }
}
