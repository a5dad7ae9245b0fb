package io.towpath.record;

import java.util.regex.Pattern;

/** Topics are named {@code <prefix>.<database>.<collection>}, where only the collection may hold dots. */
public final class TopicNames {
    private static final Pattern PREFIX = Pattern.compile("[A-Za-z0-9_-]+");
    private static final Pattern TOPIC = Pattern.compile("(?!\\.{1,2}$)[A-Za-z0-9._-]{1,249}");

    private TopicNames() {}

    /** Throws {@link ContractException} for a namespace whose topic Kafka would refuse. */
    public static String of(String prefix, String namespace) {
        String topic = prefix + "." + namespace;
        if (isTopic(topic)) return topic;
        throw new ContractException(
                "no topic can be named '%s' (at most 249 letters, digits, dots, _ and -); exclude the collection"
                        .formatted(topic));
    }

    public static boolean isPrefix(String text) {
        return PREFIX.matcher(text).matches();
    }

    public static boolean isTopic(String text) {
        return TOPIC.matcher(text).matches();
    }
}
