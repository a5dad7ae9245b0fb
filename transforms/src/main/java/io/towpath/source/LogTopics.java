package io.towpath.source;

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The topics of the log: whether they exist, and what they take. */
final class LogTopics implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(LogTopics.class);
    private static final long FRESH_NS = Duration.ofSeconds(10).toNanos();
    private static final long TIMEOUT_MS = 10_000;

    /**
     * What a topic takes.
     *
     * @param bytes its {@code max.message.bytes}
     * @param compression its {@code compression.type}: the brokers compress again, and check both sizes; empty when they keep what is sent
     */
    record Limit(int bytes, Optional<String> compression, long readNs) {}

    private static final Limit NONE = new Limit(Integer.MAX_VALUE, Optional.empty(), 0);

    private final SourceSettings settings;
    private final Function<Properties, Admin> connect;
    private final Map<String, Limit> limits = new HashMap<>();
    private final Set<String> existing = new HashSet<>();
    private Admin admin;

    LogTopics(SourceSettings settings) {
        this(settings, Admin::create);
    }

    /** @param connect makes a client of Kafka */
    LogTopics(SourceSettings settings, Function<Properties, Admin> connect) {
        this.settings = settings;
        this.connect = connect;
    }

    /**
     * Throws {@link ConnectException} for a topic that does not exist where Connect does not create it: its producer would wait for that
     * topic forever, and say nothing.
     */
    void require(String topic) throws InterruptedException {
        if (settings.createsTopics() || !settings.rereads().areUsed() || existing.contains(topic)) return;
        try {
            answer(admin().describeTopics(List.of(topic)).topicNameValues().get(topic));
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException)
                throw new ConnectException(
                        "the topic %s does not exist, and [kafka] topics = \"exist\": create it as `towpath topics PIPELINE` prints it, then run `towpath restart PIPELINE`"
                                .formatted(topic));
            LOGGER.debug("cannot see whether the topic {} exists", topic, error);
            return;
        } catch (TimeoutException error) {
            LOGGER.debug("cannot see whether the topic {} exists", topic, error);
            return;
        }
        existing.add(topic);
    }

    /** What a topic takes, read every few seconds; anything where it cannot be read. */
    Limit limit(String topic) throws InterruptedException {
        Limit last = limits.get(topic);
        if (last != null && System.nanoTime() - last.readNs < FRESH_NS) return last;
        Limit limit = last == null ? NONE : last;
        try {
            limit = readLimit(topic);
        } catch (ExecutionException | TimeoutException error) {
            LOGGER.debug("cannot read the settings of the topic {}", topic, error);
        }
        limit = new Limit(limit.bytes, limit.compression, System.nanoTime());
        limits.put(topic, limit);
        return limit;
    }

    private Limit readLimit(String topic) throws InterruptedException, ExecutionException, TimeoutException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config =
                answer(admin().describeConfigs(List.of(resource)).values().get(resource));
        int bytes = Integer.parseInt(config.get("max.message.bytes").value());
        return new Limit(bytes, ofTopic(config.get("compression.type").value()), System.nanoTime());
    }

    /** The value of a topic's {@code compression.type}: empty when the brokers keep what the producer sends. */
    static Optional<String> ofTopic(String type) {
        if (type.equals("producer")) return Optional.empty();
        return Optional.of(type.equals("uncompressed") ? "none" : type);
    }

    private static <T> T answer(KafkaFuture<T> future)
            throws InterruptedException, ExecutionException, TimeoutException {
        return future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private Admin admin() {
        if (admin == null) admin = connect.apply(settings.rereads().client());
        return admin;
    }

    @Override
    public void close() {
        if (admin != null) admin.close(Duration.ZERO);
    }
}
