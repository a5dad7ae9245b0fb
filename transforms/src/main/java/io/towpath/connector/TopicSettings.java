package io.towpath.connector;

import io.towpath.record.TopicNames;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Checks of settings that name topics. */
public final class TopicSettings {
    /** For a setting that is the prefix of topics' names. */
    public static final ConfigDef.Validator PREFIX =
            ConfigDef.LambdaValidator.with(TopicSettings::validatePrefix, () -> "letters, digits, _ and -");
    /** For a setting that names a topic, or is empty. */
    public static final ConfigDef.Validator TOPIC =
            ConfigDef.LambdaValidator.with(TopicSettings::validateTopic, () -> "empty, or the name of a topic");

    private TopicSettings() {}

    private static void validatePrefix(String name, Object value) {
        if (value == null || !TopicNames.isPrefix((String) value)) {
            throw new ConfigException(
                    name,
                    value,
                    "must contain letters, digits, _ and - only: a dot would end the prefix, and the database follows");
        }
    }

    private static void validateTopic(String name, Object value) {
        String topic = (String) value;
        if (!topic.isEmpty() && !TopicNames.isTopic(topic)) {
            throw new ConfigException(name, value, "must be at most 249 letters, digits, dots, _ and -");
        }
    }
}
