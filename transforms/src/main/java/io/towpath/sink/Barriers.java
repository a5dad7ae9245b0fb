package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.sink.ddl.Arrival;
import io.towpath.sink.ddl.Barrier;
import io.towpath.sink.ddl.SchemaChanges;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.IllegalWorkerStateException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/**
 * The partitions of a task that wait at schema changes. Connect reads nothing of them during this, and what it had read behind the change is
 * dropped and read again.
 */
final class Barriers implements AutoCloseable {
    /** How often the destination is asked how the changes are. */
    private static final long CHECK_MS = 200;
    /** While a change is made here, or partitions have just come to it: mostly the rest takes little time. */
    private static final long SOON_MS = 20;

    private static final long NEW_NS = TimeUnit.SECONDS.toNanos(1);

    private final SinkSettings settings;
    private final SinkTaskContext context;
    private final SinkMetrics metrics;
    private final SchemaChanges changes;
    private final Map<TopicPartition, Barrier> waiting = new HashMap<>();
    private long nextCheckNs = System.nanoTime();
    /** When the last partition came to a change. */
    private long arrivedNs = nextCheckNs - NEW_NS;
    /** When to check again if a change that is made here has come further. */
    private long nextNewsNs = nextCheckNs;

    /**
     * What a check has shown.
     *
     * @param partitions that no longer wait, whose positions are moved
     * @param made the changes that were made
     * @param isDisplaced whether a position is not where this task left it: the log may not be continued where it ended
     */
    record Moved(Set<TopicPartition> partitions, Set<SchemaChange> made, boolean isDisplaced) {
        private static final Moved NOTHING = new Moved(Set.of(), Set.of(), false);
    }

    Barriers(SinkSettings settings, SinkTaskContext context, SinkMetrics metrics, SchemaChanges changes) {
        this.settings = settings;
        this.context = context;
        this.metrics = metrics;
        this.changes = changes;
    }

    /** The first schema change in each partition that is among these records and not passed yet. Throws {@link ConnectException}. */
    Map<TopicPartition, Barrier> in(List<SinkRecord> records, Offsets offsets) {
        Map<TopicPartition, Barrier> first = Map.of();
        for (SinkRecord record : records) {
            if (!Barrier.is(record) || skips(record)) continue;
            TopicPartition partition = Records.partition(record);
            OptionalLong next = offsets.next(partition);
            if (first.containsKey(partition) || next.isEmpty() || record.kafkaOffset() < next.getAsLong()) continue;
            Barrier barrier = Barrier.of(record);
            if (barrier.change().kind() == Kind.COMPLETE) continue;
            if (first.isEmpty()) first = new LinkedHashMap<>();
            first.put(partition, barrier);
        }
        return first;
    }

    private boolean skips(SinkRecord record) {
        try {
            return settings.log().skips(record);
        } catch (DataException error) {
            throw Barrier.unreadable(record.topic(), record.kafkaPartition(), record.kafkaOffset(), error);
        }
    }

    /** The records that come before these schema changes in their partitions. */
    static List<SinkRecord> before(Map<TopicPartition, Barrier> barriers, List<SinkRecord> records) {
        if (barriers.isEmpty()) return records;
        return records.stream()
                .filter(record -> {
                    Barrier barrier = barriers.get(Records.partition(record));
                    return barrier == null || record.kafkaOffset() < barrier.offset();
                })
                .toList();
    }

    /** The records of partitions that do not wait. */
    List<SinkRecord> withoutStanding(List<SinkRecord> records) {
        if (waiting.isEmpty()) return records;
        return records.stream()
                .filter(record -> !waiting.containsKey(Records.partition(record)))
                .toList();
    }

    /** These partitions wait now. */
    void arrived(Map<TopicPartition, Barrier> barriers) {
        if (barriers.isEmpty()) return;
        waiting.putAll(barriers);
        context.pause(barriers.keySet().toArray(TopicPartition[]::new));
        arrivedNs = System.nanoTime();
        nextCheckNs = arrivedNs;
    }

    private boolean isNew() {
        return System.nanoTime() - arrivedNs < NEW_NS;
    }

    /** These partitions are read from their positions, or by another task. */
    void forget(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            if (waiting.remove(partition) == null) continue;
            try {
                context.resume(partition);
            } catch (IllegalWorkerStateException error) {
                // Connect has revoked it
            }
        }
    }

    /** From time to time, checks how far the changes are, and makes what this task has to make. */
    Moved check(MongoClient client, Offsets offsets) {
        if (waiting.isEmpty()) {
            metrics.schemaChanges(0, 0, changes.made());
            return Moved.NOTHING;
        }
        context.timeout(changes.isMaking() || isNew() ? SOON_MS : CHECK_MS);
        long now = System.nanoTime();
        if (now - (changes.hasNews() ? nextNewsNs : nextCheckNs) < 0) return Moved.NOTHING;
        try {
            Moved moved = moved(client, offsets);
            metrics.schemaChanges(changes.waiting(), changes.refused(), changes.made());
            if (changes.isMaking()) context.timeout(SOON_MS);
            return moved;
        } catch (MongoException error) {
            metrics.retried(error);
            return Moved.NOTHING;
        } finally {
            nextNewsNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SOON_MS);
            nextCheckNs = isNew() ? nextNewsNs : now + TimeUnit.MILLISECONDS.toNanos(CHECK_MS);
        }
    }

    private Moved moved(MongoClient client, Offsets offsets) {
        Map<String, Barrier> distinct = new LinkedHashMap<>();
        waiting.values().forEach(barrier -> distinct.put(barrier.change().id(), barrier));
        Map<String, List<TopicPartition>> partitions = new HashMap<>();
        Set<TopicPartition> all = new HashSet<>(waiting.keySet());
        distinct.forEach((id, barrier) -> partitions.put(id, partitions(barrier.change())));
        partitions.values().forEach(all::addAll);
        Map<TopicPartition, OffsetDocument> stored = offsets.stored(all);

        Set<TopicPartition> moved = new HashSet<>();
        Map<TopicPartition, Barrier> here = new HashMap<>();
        LogSettings log = settings.log();
        waiting.forEach((partition, barrier) -> {
            OffsetDocument position = stored.get(partition);
            OffsetDocument own = offsets.position(partition);
            if (position == null || own == null || position.epoch() != own.epoch()) return; // another task's
            if (position.offset() == barrier.offset()
                    && waits(position, barrier.change().id())) {
                if (!log.endsBefore(partition, barrier.offset())) here.put(partition, barrier);
            } else if (offsets.reload(partition)) moved.add(partition);
        });

        boolean isDisplaced = !moved.isEmpty();
        List<Arrival> arrivals = new ArrayList<>();
        new HashSet<>(here.values().stream()
                        .map(barrier -> barrier.change().id())
                        .toList())
                .forEach(id ->
                        arrivals.add(arrival(distinct.get(id), partitions.get(id), stored, here.keySet(), offsets)));
        Map<String, Boolean> over = changes.check(client, arrivals);
        here.values().removeIf(barrier -> !over.containsKey(barrier.change().id()));
        if (!here.isEmpty() && offsets.pass(here)) moved.addAll(here.keySet());
        else here.clear();
        Set<SchemaChange> made = new HashSet<>();
        here.values().forEach(barrier -> {
            if (over.get(barrier.change().id())) made.add(barrier.change());
        });
        forget(moved);
        return new Moved(moved, made, isDisplaced);
    }

    /** The partitions of a change that this sink reads. The owner of the first one that waits at the change makes it. */
    private List<TopicPartition> partitions(SchemaChange change) {
        return new TreeSet<>(changes.topics(change))
                .stream()
                        .flatMap(topic -> IntStream.range(0, change.partitions().get(topic))
                                .mapToObj(number -> new TopicPartition(topic, number)))
                        .toList();
    }

    private Arrival arrival(
            Barrier barrier,
            List<TopicPartition> partitions,
            Map<TopicPartition, OffsetDocument> stored,
            Set<TopicPartition> here,
            Offsets offsets) {
        String id = barrier.change().id();
        int arrived = (int) partitions.stream()
                .map(stored::get)
                .filter(position -> position != null
                        && position.barrier() != null
                        && (position.barrier().equals(id) || SchemaChange.isLater(position.barrier(), id)))
                .count();
        TopicPartition first = partitions.stream()
                .filter(partition -> waits(stored.get(partition), id)
                        && !settings.log()
                                .endsBefore(partition, stored.get(partition).offset()))
                .findFirst()
                .orElseThrow();
        Predicate<MongoClient> makes = null;
        if (here.contains(first)) {
            long epoch = offsets.position(first).epoch();
            makes = client -> {
                OffsetDocument position = new OffsetStore(settings.pipeline(), client).position(first);
                return waits(position, id) && position.epoch() == epoch;
            };
        }
        return new Arrival(barrier, arrived, partitions.size(), makes);
    }

    private static boolean waits(OffsetDocument position, String change) {
        return position != null && change.equals(position.barrier());
    }

    @Override
    public void close() {
        changes.close();
    }
}
