package io.towpath.connector;

import io.towpath.record.TopicNames;
import java.util.function.Predicate;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Checks of settings that name topics. */
public final class TopicSettings {
    /** For a setting that is the prefix of topics' names. */
    public static final ConfigDef.Validator PREFIX = validator(
            TopicNames::isPrefix,
            "letters, digits, _ and -",
            "must contain letters, digits, _ and - only: a dot would end the prefix, and the database follows");
    /** For a setting that names a topic, or is empty. */
    public static final ConfigDef.Validator TOPIC = validator(
            topic -> topic.isEmpty() || TopicNames.isTopic(topic),
            "empty, or the name of a topic",
            "must be at most 249 letters, digits, dots, _ and -");

    private TopicSettings() {}

    private static ConfigDef.Validator validator(Predicate<String> isValid, String description, String fault) {
        return ConfigDef.LambdaValidator.with(
                (name, value) -> {
                    if (value == null || !isValid.test((String) value)) throw new ConfigException(name, value, fault);
                },
                () -> description);
    }
}
