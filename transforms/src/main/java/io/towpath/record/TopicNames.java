package io.towpath.record;

import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;

/** Topics are named {@code <prefix>.<database>.<collection>}, where only the collection may hold dots. */
public final class TopicNames {
    /** For a setting that is such a prefix. */
    public static final ConfigDef.Validator PREFIX =
            ConfigDef.LambdaValidator.with(TopicNames::validatePrefix, () -> "letters, digits, _ and -");
    /** For a setting that names a topic, or is empty. */
    public static final ConfigDef.Validator TOPIC =
            ConfigDef.LambdaValidator.with(TopicNames::validateTopic, () -> "empty, or the name of a topic");

    private static final Pattern PREFIXES = Pattern.compile("[A-Za-z0-9_-]+");
    private static final Pattern TOPICS = Pattern.compile("(?!\\.{1,2}$)[A-Za-z0-9._-]{1,249}");

    private TopicNames() {}

    /** Throws {@link DataException} for a namespace whose topic Kafka would refuse. */
    public static String of(String prefix, String namespace) {
        String topic = prefix + "." + namespace;
        if (TOPICS.matcher(topic).matches()) return topic;
        throw new DataException(
                "no topic can be named '%s' (at most 249 letters, digits, dots, _ and -); exclude the collection"
                        .formatted(topic));
    }

    private static void validatePrefix(String name, Object value) {
        if (value == null || !PREFIXES.matcher((String) value).matches()) {
            throw new ConfigException(
                    name, value, "must be letters, digits, _ and - only: what follows its dot is the database");
        }
    }

    private static void validateTopic(String name, Object value) {
        String topic = (String) value;
        if (!topic.isEmpty() && !TOPICS.matcher(topic).matches()) {
            throw new ConfigException(name, value, "must be at most 249 letters, digits, dots, _ and -");
        }
    }
}
