package io.towpath.source.ddl;

import io.towpath.record.TopicNames;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.connect.errors.RetriableException;

/** How many partitions topics have, or get when Connect creates them. */
public final class TopicPartitions implements AutoCloseable {
    private static final String NEW_TOPICS = "topic.creation.default.partitions";
    private static final long TIMEOUT_MS = 10_000;

    private final String prefix;
    /** Null where all topics are new. */
    private final Properties client;

    private final Counts counts;
    private final int ofNewTopics;
    private final Map<String, Integer> known = new HashMap<>();
    private Admin admin;

    /** How many partitions a topic has; empty when it does not exist. */
    interface Counts {
        OptionalInt of(String topic) throws InterruptedException;
    }

    /**
     * @param prefix of topics
     * @param client how to reach Kafka; empty: all topics are new
     */
    public TopicPartitions(String prefix, Map<String, String> configuration, Optional<Properties> client) {
        this(prefix, configuration, client, null);
    }

    /** @param counts null to ask Kafka */
    TopicPartitions(String prefix, Map<String, String> configuration, Optional<Properties> client, Counts counts) {
        this.prefix = prefix;
        this.client = client.orElse(null);
        this.counts = counts == null ? this::read : counts;
        this.ofNewTopics = Integer.parseInt(configuration.getOrDefault(NEW_TOPICS, "1"));
    }

    /** By topic, of those of these namespaces; {@code to} may be empty. Throws {@link RetriableException} when Kafka does not answer. */
    Map<String, Integer> of(String namespace, String to) throws InterruptedException {
        Map<String, Integer> counts = new HashMap<>();
        for (String name : to.isEmpty() ? List.of(namespace) : List.of(namespace, to)) {
            String topic = TopicNames.of(prefix, name);
            counts.put(topic, of(topic));
        }
        return counts;
    }

    private int of(String topic) throws InterruptedException {
        if (client == null) return ofNewTopics;
        Integer count = known.get(topic);
        if (count != null) return count;
        OptionalInt read = counts.of(topic);
        // a topic may yet be created with another count; that of one that exists does not change
        read.ifPresent(existing -> known.put(topic, existing));
        return read.orElse(ofNewTopics);
    }

    private OptionalInt read(String topic) throws InterruptedException {
        if (admin == null) admin = Admin.create(client);
        try {
            return OptionalInt.of(admin.describeTopics(List.of(topic))
                    .topicNameValues()
                    .get(topic)
                    .get(TIMEOUT_MS, TimeUnit.MILLISECONDS)
                    .partitions()
                    .size());
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) return OptionalInt.empty();
            throw new RetriableException("Kafka does not describe the topic " + topic, error.getCause());
        } catch (TimeoutException error) {
            throw new RetriableException("Kafka does not describe the topic " + topic, error);
        }
    }

    @Override
    public void close() {
        if (admin != null) admin.close(Duration.ZERO);
    }
}
