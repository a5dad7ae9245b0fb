package io.towpath.source;

import io.towpath.record.TopicNames;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.errors.ConnectException;

/** What the change topics show of earlier captures, also where the offsets know nothing of them. */
final class CapturedLog {
    private static final Duration POLL = Duration.ofMillis(200);
    /** Without any progress. Longer than Kafka's own time-outs. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private final String name;
    private final Properties client;

    /**
     * @param name of the pipeline
     * @param client how to reach Kafka
     */
    CapturedLog(String name, Properties client) {
        this.name = name;
        this.client = client;
    }

    /**
     * The selected namespaces whose topics hold committed records, or have held records that retention has deleted. Throws {@link
     * ConnectException} where a transaction that has not ended hides that, and Kafka's exceptions.
     */
    Set<String> namespaces(Predicate<String> selection) {
        Map<TopicPartition, Long> written;
        try (Consumer<byte[], byte[]> all = consumer("read_uncommitted")) {
            List<TopicPartition> partitions = partitions(all, selection);
            all.assign(partitions); // else the client logs a warning for each
            written = all.endOffsets(partitions);
        }
        if (written.values().stream().allMatch(end -> end == 0)) return Set.of();
        try (Consumer<byte[], byte[]> committed = consumer("read_committed")) {
            Set<String> topics = topics(committed, written);
            Set<String> namespaces = new TreeSet<>();
            topics.forEach(topic -> namespaces.add(topic.substring(prefix().length())));
            return namespaces;
        }
    }

    private String prefix() {
        return TopicNames.of(name, "");
    }

    private List<TopicPartition> partitions(Consumer<?, ?> consumer, Predicate<String> selection) {
        return consumer.listTopics().entrySet().stream()
                .filter(topic -> isSelected(topic.getKey(), selection))
                .flatMap(topic -> topic.getValue().stream())
                .map(partition -> new TopicPartition(partition.topic(), partition.partition()))
                .toList();
    }

    private boolean isSelected(String topic, Predicate<String> selection) {
        if (!topic.startsWith(prefix())) return false;
        String namespace = topic.substring(prefix().length());
        int dot = namespace.indexOf('.'); // the pipeline's other topics have none
        return dot > 0 && dot < namespace.length() - 1 && selection.test(namespace);
    }

    /** Those that hold records, or do not begin at offset 0 any more. */
    static Set<String> topics(Consumer<byte[], byte[]> consumer, Map<TopicPartition, Long> written) {
        Set<String> found = new HashSet<>();
        consumer.assign(written.keySet());
        consumer.beginningOffsets(written.keySet()).forEach((partition, start) -> {
            if (start > 0) found.add(partition.topic());
        });
        Map<TopicPartition, Long> stable = consumer.endOffsets(written.keySet());
        Set<TopicPartition> unread = new HashSet<>(written.keySet());
        unread.removeIf(partition -> written.get(partition) == 0);
        read(consumer, unread, stable, found);
        Stream<TopicPartition> hidden = written.keySet().stream()
                .filter(partition -> !found.contains(partition.topic()))
                .filter(partition -> stable.get(partition) < written.get(partition));
        hidden.findAny().ifPresent(partition -> {
            throw new ConnectException(
                    "whether %s holds records of an earlier capture cannot be seen: a transaction there has not ended. `towpath restart PIPELINE` ends it"
                            .formatted(partition));
        });
        return found;
    }

    /** Adds the topics with a committed record. Aborted records and markers count as none. */
    private static void read(
            Consumer<byte[], byte[]> consumer,
            Set<TopicPartition> unread,
            Map<TopicPartition, Long> stable,
            Set<String> found) {
        consumer.assign(unread);
        consumer.seekToBeginning(unread);
        for (long end = System.nanoTime() + PATIENCE.toNanos(); ; ) {
            List<TopicPartition> done = unread.stream()
                    .filter(partition ->
                            found.contains(partition.topic()) || consumer.position(partition) >= stable.get(partition))
                    .toList();
            unread.removeAll(done);
            if (unread.isEmpty()) return;
            consumer.pause(done);
            if (!done.isEmpty()) end = System.nanoTime() + PATIENCE.toNanos();
            if (System.nanoTime() > end)
                throw new ConnectException("Kafka does not return the first records of " + unread);
            consumer.poll(POLL).forEach(record -> found.add(record.topic()));
        }
    }

    private Consumer<byte[], byte[]> consumer(String isolation) {
        Properties properties = new Properties();
        properties.putAll(client);
        properties.put("isolation.level", isolation);
        properties.put("allow.auto.create.topics", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        // a record of each topic is enough; a broker sends a first one that is larger all the same
        properties.put("fetch.max.bytes", Integer.toString(1 << 20));
        properties.put("max.partition.fetch.bytes", Integer.toString(64 << 10));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The first of them, and how many more there are. */
    static String some(Collection<String> namespaces) {
        List<String> some = namespaces.stream().limit(3).toList();
        String more = namespaces.size() > 3 ? " and %,d more".formatted(namespaces.size() - 3) : "";
        return String.join(", ", some) + more;
    }

    /** The advice for namespaces whose history is lost. */
    static ConnectException lost(Collection<String> namespaces, String reason, String option) {
        return new ConnectException(
                "TWP-HISTORY-LOST: %s: the log holds records of %s. Documents that were deleted at the source in between would stay at the destination. `towpath resnapshot PIPELINE%s` re-reads the documents and deletes those that are gone, without emptying the destination"
                        .formatted(reason, some(namespaces), option));
    }
}
