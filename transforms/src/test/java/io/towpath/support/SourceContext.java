package io.towpath.support;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** Connect as a source task sees it that has stored nothing yet. */
public final class SourceContext implements SourceTaskContext, OffsetStorageReader {
    private final Map<String, String> configuration;

    public SourceContext(Map<String, String> configuration) {
        this.configuration = configuration;
    }

    @Override
    public Map<String, String> configs() {
        return configuration;
    }

    @Override
    public OffsetStorageReader offsetStorageReader() {
        return this;
    }

    @Override
    public PluginMetrics pluginMetrics() {
        throw new UnsupportedOperationException();
    }

    @Override
    public <T> Map<String, Object> offset(Map<String, T> partition) {
        return null;
    }

    @Override
    public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
        return new HashMap<>();
    }
}
