package io.towpath.source;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.common.config.ConfigResource;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** How large a record each topic takes ({@code max.message.bytes}), as it was asked for lately. */
final class TopicLimits implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(TopicLimits.class);
    private static final long FRESH_NS = Duration.ofSeconds(10).toNanos();
    private static final long TIMEOUT_MS = 10_000;

    private record Known(int bytes, long askedNs) {}

    private final Properties settings;
    private final Map<String, Known> known = new HashMap<>();
    private Admin admin;

    /** @param settings how to reach Kafka */
    TopicLimits(Properties settings) {
        this.settings = settings;
    }

    /** The limit of a topic; the largest number where that cannot be told. */
    int of(String topic) throws InterruptedException {
        Known before = known.get(topic);
        if (before != null && System.nanoTime() - before.askedNs < FRESH_NS) return before.bytes;
        int bytes = before == null ? Integer.MAX_VALUE : before.bytes;
        try {
            bytes = ask(topic);
        } catch (ExecutionException | TimeoutException error) {
            LOGGER.debug("the settings of the topic {} cannot be seen", topic, error);
        }
        known.put(topic, new Known(bytes, System.nanoTime()));
        return bytes;
    }

    private int ask(String topic) throws InterruptedException, ExecutionException, TimeoutException {
        if (admin == null) admin = Admin.create(settings);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config found =
                admin.describeConfigs(List.of(resource)).values().get(resource).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return Integer.parseInt(found.get("max.message.bytes").value());
    }

    @Override
    public void close() {
        if (admin != null) admin.close(Duration.ZERO);
    }
}
