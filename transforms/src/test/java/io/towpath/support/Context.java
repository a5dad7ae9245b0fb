package io.towpath.support;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** What a sink task says to Connect, kept to be looked at. */
public final class Context implements SinkTaskContext {
    public final Map<TopicPartition, Long> seeks = new HashMap<>();
    public final Set<TopicPartition> paused = new HashSet<>();
    public final List<SinkRecord> letters = new ArrayList<>();
    public long timeoutMs = -1;

    @Override
    public Map<String, String> configs() {
        return Map.of();
    }

    @Override
    public void offset(Map<TopicPartition, Long> offsets) {
        seeks.putAll(offsets);
    }

    @Override
    public void offset(TopicPartition partition, long offset) {
        seeks.put(partition, offset);
    }

    @Override
    public void timeout(long ms) {
        timeoutMs = ms;
    }

    @Override
    public Set<TopicPartition> assignment() {
        return seeks.keySet();
    }

    @Override
    public void pause(TopicPartition... partitions) {
        paused.addAll(List.of(partitions));
    }

    @Override
    public void resume(TopicPartition... partitions) {
        List.of(partitions).forEach(paused::remove);
    }

    @Override
    public void requestCommit() {
        throw new UnsupportedOperationException();
    }

    @Override
    public PluginMetrics pluginMetrics() {
        throw new UnsupportedOperationException();
    }

    @Override
    public ErrantRecordReporter errantRecordReporter() {
        return (record, error) -> {
            letters.add(record);
            return CompletableFuture.completedFuture(null);
        };
    }
}
