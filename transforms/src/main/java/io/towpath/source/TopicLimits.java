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

/** How large a record each topic takes ({@code max.message.bytes}), read every few seconds. */
final class TopicLimits implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(TopicLimits.class);
    private static final long FRESH_NS = Duration.ofSeconds(10).toNanos();
    private static final long TIMEOUT_MS = 10_000;

    private record Limit(int bytes, long readNs) {}

    private final Properties settings;
    private final Map<String, Limit> limits = new HashMap<>();
    private Admin admin;

    /** @param settings how to reach Kafka */
    TopicLimits(Properties settings) {
        this.settings = settings;
    }

    /** The limit of a topic; the largest number where it cannot be read. */
    int of(String topic) throws InterruptedException {
        Limit last = limits.get(topic);
        if (last != null && System.nanoTime() - last.readNs < FRESH_NS) return last.bytes;
        int bytes = last == null ? Integer.MAX_VALUE : last.bytes;
        try {
            bytes = read(topic);
        } catch (ExecutionException | TimeoutException error) {
            LOGGER.debug("cannot read the settings of the topic {}", topic, error);
        }
        limits.put(topic, new Limit(bytes, System.nanoTime()));
        return bytes;
    }

    private int read(String topic) throws InterruptedException, ExecutionException, TimeoutException {
        if (admin == null) admin = Admin.create(settings);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config =
                admin.describeConfigs(List.of(resource)).values().get(resource).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return Integer.parseInt(config.get("max.message.bytes").value());
    }

    @Override
    public void close() {
        if (admin != null) admin.close(Duration.ZERO);
    }
}
