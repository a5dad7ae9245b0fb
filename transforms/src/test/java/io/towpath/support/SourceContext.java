package io.towpath.support;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** Connect as a source task sees it that has stored nothing yet, or what {@link #store} was given. */
public final class SourceContext implements SourceTaskContext, OffsetStorageReader {
    private final Map<String, String> configuration;
    private final Map<Map<String, ?>, Map<String, Object>> stored = new HashMap<>();

    public SourceContext(Map<String, String> configuration) {
        this.configuration = configuration;
    }

    /** Stores the offsets of records, as Connect does once they are committed. */
    @SuppressWarnings("unchecked")
    public void store(Collection<SourceRecord> records) {
        records.forEach(record ->
                stored.put(new HashMap<>(record.sourcePartition()), (Map<String, Object>) record.sourceOffset()));
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
        return stored.get(partition);
    }

    @Override
    public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
        Map<Map<String, T>, Map<String, Object>> offsets = new HashMap<>();
        partitions.forEach(partition -> offsets.put(partition, offset(partition)));
        return offsets;
    }
}
