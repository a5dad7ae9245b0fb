package io.towpath.sink;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Kafka's bounds of the log's partitions, and the ids of their topics. */
final class LogAdmin implements LogBounds.Source {
    private static final int PATIENCE_MS = 10_000;
    /** A running sink needs them for every transaction; it may notice a second late that a topic was created again. */
    private static final long IDS_NS = TimeUnit.SECONDS.toNanos(1);

    private record Ids(Map<String, String> byTopic, long readNs) {}

    private final Admin admin;
    private final LogEnd records;
    private volatile Ids latest = new Ids(Map.of(), 0);

    /** @param consumer the settings to read the log with, which include how to log in */
    LogAdmin(Properties consumer) {
        Map<String, Object> settings = new HashMap<>();
        for (String name : AdminClientConfig.configNames())
            if (consumer.containsKey(name)) settings.put(name, consumer.get(name));
        settings.put(AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG, PATIENCE_MS);
        settings.put(AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, PATIENCE_MS);
        admin = Admin.create(settings);
        records = new LogEnd(consumer);
    }

    @Override
    public Map<TopicPartition, OptionalLong> firstTimes(Map<TopicPartition, Long> positions) {
        return records.firstTimes(positions);
    }

    @Override
    public Map<TopicPartition, OptionalLong> timesAt(Map<TopicPartition, Long> offsets) {
        return records.timesAt(offsets);
    }

    @Override
    public CompletableFuture<Map<TopicPartition, LogBounds>> bounds(
            Collection<TopicPartition> partitions, boolean ends) {
        Set<String> topics = partitions.stream().map(TopicPartition::topic).collect(Collectors.toSet());
        return (ends ? ids(topics) : recentIds(topics))
                .thenCompose(ids -> {
                    Set<TopicPartition> existing = partitions.stream()
                            .filter(partition -> ids.containsKey(partition.topic()))
                            .collect(Collectors.toSet());
                    return offsets(existing, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)
                            .thenCompose(starts -> ends
                                    ? withEnds(ids, starts)
                                    : CompletableFuture.completedStage(bounds(ids, starts, Map.of(), Map.of())));
                })
                .toCompletableFuture();
    }

    /** Reads the committed end first: where both ends are the same, no transaction was open. */
    private CompletionStage<Map<TopicPartition, LogBounds>> withEnds(
            Map<String, String> ids, Map<TopicPartition, ListOffsetsResultInfo> starts) {
        return offsets(starts.keySet(), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
                .thenCompose(stable -> offsets(starts.keySet(), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
                        .thenApply(written -> bounds(ids, starts, stable, written)));
    }

    private static Map<TopicPartition, LogBounds> bounds(
            Map<String, String> ids,
            Map<TopicPartition, ListOffsetsResultInfo> starts,
            Map<TopicPartition, ListOffsetsResultInfo> stable,
            Map<TopicPartition, ListOffsetsResultInfo> written) {
        Map<TopicPartition, LogBounds> bounds = new HashMap<>();
        starts.forEach((partition, start) -> bounds.put(
                partition,
                new LogBounds(
                        ids.get(partition.topic()),
                        start.offset(),
                        offset(stable.get(partition)),
                        offset(written.get(partition)),
                        epoch(stable.get(partition)))));
        return bounds;
    }

    private static long offset(ListOffsetsResultInfo end) {
        return end == null ? LogBounds.UNKNOWN : end.offset();
    }

    private static int epoch(ListOffsetsResultInfo end) {
        return end == null ? LogBounds.NO_EPOCH : end.leaderEpoch().orElse(LogBounds.NO_EPOCH);
    }

    private CompletionStage<Map<String, String>> recentIds(Set<String> topics) {
        Ids known = latest;
        boolean isRecent = System.nanoTime() - known.readNs() < IDS_NS;
        return isRecent && known.byTopic().keySet().containsAll(topics)
                ? CompletableFuture.completedStage(known.byTopic())
                : ids(topics);
    }

    private CompletionStage<Map<String, String>> ids(Set<String> topics) {
        long readNs = System.nanoTime();
        CompletionStage<Map<String, String>> all = CompletableFuture.completedStage(new HashMap<>());
        for (var description : admin.describeTopics(topics).topicNameValues().entrySet())
            all = all.thenCombine(description.getValue().toCompletionStage().handle(LogAdmin::idOf), (ids, id) -> {
                if (id != null) ids.put(description.getKey(), id);
                return ids;
            });
        return all.thenApply(ids -> {
            latest = new Ids(Map.copyOf(ids), readNs);
            return ids;
        });
    }

    private static String idOf(TopicDescription topic, Throwable error) {
        if (error == null) return topic.topicId().toString();
        Throwable cause = error instanceof CompletionException wrapped ? wrapped.getCause() : error;
        if (cause instanceof UnknownTopicOrPartitionException) return null;
        throw new CompletionException(cause);
    }

    private CompletionStage<Map<TopicPartition, ListOffsetsResultInfo>> offsets(
            Set<TopicPartition> partitions, OffsetSpec spec, IsolationLevel level) {
        Map<TopicPartition, OffsetSpec> specs =
                partitions.stream().collect(Collectors.toMap(Function.identity(), partition -> spec));
        return admin.listOffsets(specs, new ListOffsetsOptions(level)).all().toCompletionStage();
    }

    @Override
    public void close() {
        admin.close(Duration.ZERO);
    }
}
