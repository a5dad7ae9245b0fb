package io.towpath.source;

import io.debezium.connector.mongodb.MongoDbConnector;
import io.towpath.connector.Requirements;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;

/**
 * Debezium's MongoDB connector with an initial copy of its own, in one linear history per document: rows of the copy, then the stream
 * without what the rows hold already, and re-read documents in between.
 */
public final class MongoSource extends MongoDbConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return MongoSourceTask.class;
    }

    @Override
    public ConfigDef config() {
        return SourceSettings.define(new ConfigDef(super.config()));
    }

    @Override
    public Config validate(Map<String, String> configuration) {
        Requirements requirements = SourceRequirements.of(configuration);
        // Debezium omits settings that it defines, and Connect fails on that when there is an error
        Map<String, ConfigValue> values = new LinkedHashMap<>(config().validateAll(configuration));
        // it also connects, and our hook throws where it cannot work
        if (requirements.areMet())
            super.validate(configuration).configValues().forEach(value -> values.put(value.name(), value));
        return new Config(requirements.addedTo(values.values()));
    }
}
