package io.towpath.source.reread;

import io.towpath.connector.TopicSettings;
import java.util.Properties;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;

/**
 * Where re-read requests come from.
 *
 * @param client how to reach Kafka
 */
public record RereadSettings(String topic, Properties client) {
    private static final String TOPIC = "towpath.requests.topic";
    private static final String SERVERS = "towpath.requests.bootstrap.servers";
    /** The settings of Connect's own consumers for this connector, above all how to log in to Kafka. */
    private static final String CONSUMERS = "consumer.override.";

    public static ConfigDef define(ConfigDef definition) {
        return definition
                .define(
                        TOPIC,
                        Type.STRING,
                        "",
                        TopicSettings.TOPIC,
                        Importance.MEDIUM,
                        "The topic of requests to re-read documents.")
                .define(
                        SERVERS,
                        Type.STRING,
                        "",
                        Importance.MEDIUM,
                        "Kafka's address, as workers see it, for reading requests; empty: none are read.");
    }

    public static RereadSettings of(AbstractConfig parsed) {
        Properties client = new Properties();
        client.putAll(parsed.originalsWithPrefix(CONSUMERS));
        client.put("bootstrap.servers", parsed.getString(SERVERS));
        return new RereadSettings(parsed.getString(TOPIC), client);
    }

    public boolean areUsed() {
        return !topic.isEmpty() && !client.getProperty("bootstrap.servers").isEmpty();
    }
}
