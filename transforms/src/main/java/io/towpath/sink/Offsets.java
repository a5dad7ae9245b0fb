package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.ReadConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.Updates;
import io.towpath.sink.ddl.Barrier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * How far each partition is applied, as the destination has it: one document per partition, which the transactions that apply the records
 * write. Its epoch identifies its owner: a task that opens a partition increments it, and no other task's transaction succeeds any more.
 */
final class Offsets {
    private static final int PATIENCE_S = 2;
    /** How often {@link #takenBack} looks. */
    private static final long CHECK_NS = TimeUnit.SECONDS.toNanos(5);

    /** Where the stored offsets are, compared with where a transaction expects them. */
    enum Drift {
        /** They are where they are expected. */
        NONE,
        /** They are further on: a transaction that seemed to fail has succeeded. */
        AHEAD,
        /** They are further back: a failover has rolled a transaction back. */
        BEHIND
    }

    /** Who owns a partition instead of this task. Epochs only increase, and no task deletes a position. */
    enum Owner {
        /** A task that has taken it over. */
        LATER,
        /** A task before this one: the destination was restored to an earlier state, or emptied and used again. */
        EARLIER,
        /** No task has a position: the destination was emptied. */
        NONE
    }

    /**
     * Where a transaction ends in a partition.
     *
     * @param offset of the next record
     * @param atMs the broker's time of the last one; null if it has none
     */
    record End(long offset, Long atMs) {}

    private final OffsetStore store;
    private final DeleteGuard guard;
    private final LogGuard log;
    private final Map<TopicPartition, OffsetDocument> positions = new HashMap<>();
    /** Partitions whose {@link OffsetDocument#clear} is not stored yet. */
    private final Set<TopicPartition> unstored = new HashSet<>();
    /** Partitions whose positions a failover may take back, as far as is known. */
    private final Set<TopicPartition> unproven = new HashSet<>();

    private final LongSupplier clock;
    private long checkedNs;

    Offsets(String pipeline, MongoClient client, DeleteGuard guard, LogGuard log) {
        this(pipeline, client, guard, log, System::nanoTime);
    }

    /** @param clock in nanoseconds */
    Offsets(String pipeline, MongoClient client, DeleteGuard guard, LogGuard log, LongSupplier clock) {
        this.store = new OffsetStore(pipeline, client);
        this.guard = guard;
        this.log = log;
        this.clock = clock;
        this.checkedNs = clock.getAsLong();
    }

    /** Takes a partition over from its owner. */
    void open(TopicPartition partition, BsonDocument session) {
        load(partition, store.takeOver(partition, session, guard.opening(System.currentTimeMillis())));
    }

    private OffsetDocument load(TopicPartition partition, BsonDocument stored) {
        OffsetDocument position = OffsetDocument.of(stored);
        positions.put(partition, position);
        unproven.add(partition);
        guard.opened(partition, stored);
        log.moved(partition, position);
        return position;
    }

    /**
     * Requires of partitions that were just opened that their log continues at their positions, and stores the ids of their topics. Throws
     * {@link LogBounds.Broken}, and {@link Unanswered}.
     */
    void requireLog(Collection<TopicPartition> opened) {
        Map<TopicPartition, OffsetDocument> newPositions = new HashMap<>(positions);
        newPositions.keySet().retainAll(opened);
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        log.opened(newPositions).forEach((partition, id) -> {
            OffsetDocument position = newPositions.get(partition);
            if (id.equals(position.topicId())) return;
            updates.add(
                    new UpdateOneModel<>(store.owned(partition, position), Updates.set(OffsetDocument.TOPIC_ID, id)));
            positions.put(partition, position.inTopic(id));
        });
        if (!updates.isEmpty()) store.durable().bulkWrite(updates);
    }

    /** These records were delivered. Throws {@link LogBounds.Broken} when they are not what comes next. */
    void received(List<SinkRecord> records) {
        log.received(records, positions);
    }

    void forget(TopicPartition partition) {
        positions.remove(partition);
        unstored.remove(partition);
        unproven.remove(partition);
        guard.forget(partition);
        log.forget(partition);
    }

    /** The offset of the next record to apply; empty for a partition that is not this task's. */
    OptionalLong next(TopicPartition partition) {
        OffsetDocument position = positions.get(partition);
        return position == null ? OptionalLong.empty() : OptionalLong.of(position.offset());
    }

    /** The offsets of the next records to apply, of all of this task's partitions. */
    Map<TopicPartition, Long> all() {
        Map<TopicPartition, Long> all = new HashMap<>();
        positions.forEach((partition, position) -> all.put(partition, position.offset()));
        return all;
    }

    /** The offsets of the next records to read. */
    private Map<TopicPartition, Long> unread() {
        Map<TopicPartition, Long> unread = new HashMap<>();
        positions.forEach((partition, position) -> unread.put(partition, position.next()));
        return unread;
    }

    /** What this task knows of its partition; null for another's. */
    OffsetDocument position(TopicPartition partition) {
        return positions.get(partition);
    }

    /** The positions that are stored of these partitions, whosever they are. */
    Map<TopicPartition, OffsetDocument> stored(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetDocument> stored = new HashMap<>();
        store.find(store.durable(), partitions)
                .forEach((partition, document) -> stored.put(partition, OffsetDocument.of(document)));
        return stored;
    }

    /**
     * Advances partitions to these ends within a transaction. Returns false when one is not where it should be: see {@link #drifts}.
     * Throws as {@link LogGuard#require}.
     */
    boolean advance(ClientSession session, Map<TopicPartition, End> ends) {
        log.require(positions);
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        ends.forEach((partition, end) -> updates.add(advance(partition, end)));
        return store.collection().bulkWrite(session, updates).getMatchedCount() == updates.size();
    }

    private UpdateOneModel<BsonDocument> advance(TopicPartition partition, End end) {
        BsonDocument set = new BsonDocument(OffsetDocument.OFFSET, new BsonInt64(end.offset()))
                .append(OffsetDocument.LAST_AT, time(end.atMs()));
        if (guard.watches(partition) && end.atMs() != null) set.append(DeleteGuard.AT, new BsonDateTime(end.atMs()));
        OffsetDocument position = positions.get(partition);
        BsonDocument update = OffsetDocument.set(set);
        if (position.barrier() != null)
            update.append("$unset", new BsonDocument(OffsetDocument.BARRIER, new BsonString("")));
        return new UpdateOneModel<>(store.at(partition, position), update);
    }

    /**
     * Notes that partitions, of which all before is applied, wait at these schema changes. Returns false when one is not where it should
     * be: see {@link #drifts}. Throws as {@link LogGuard#require}.
     */
    boolean arrive(Map<TopicPartition, Barrier> barriers) {
        log.require(positions);
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        barriers.forEach((partition, barrier) -> {
            BsonDocument set = new BsonDocument(OffsetDocument.OFFSET, new BsonInt64(barrier.offset()))
                    .append(
                            OffsetDocument.BARRIER,
                            new BsonString(barrier.change().id()))
                    .append(OffsetDocument.LAST_AT, time(barrier.appendedMs()));
            updates.add(new UpdateOneModel<>(store.at(partition, positions.get(partition)), OffsetDocument.set(set)));
        });
        if (store.durable().bulkWrite(updates).getMatchedCount() != updates.size()) return false;
        barriers.forEach((partition, barrier) -> positions.computeIfPresent(
                partition,
                (unused, from) ->
                        from.standingAt(barrier.offset(), barrier.change().id(), barrier.appendedMs())));
        return true;
    }

    /** Moves partitions on behind these schema changes. Returns false when one is not where it should be: see {@link #drifts}. */
    boolean pass(Map<TopicPartition, Barrier> barriers) {
        Map<TopicPartition, End> ends = new HashMap<>();
        barriers.forEach(
                (partition, barrier) -> ends.put(partition, new End(barrier.offset() + 1, barrier.appendedMs())));
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        ends.forEach((partition, end) -> updates.add(advance(partition, end)));
        if (store.durable().bulkWrite(updates).getMatchedCount() != updates.size()) return false;
        advanced(ends);
        ends.keySet().forEach(partition -> log.moved(partition, positions.get(partition)));
        return true;
    }

    private static BsonValue time(Long ms) {
        return ms == null ? BsonNull.VALUE : new BsonDateTime(ms);
    }

    /** The transaction has been committed. */
    void advanced(Map<TopicPartition, End> ends) {
        ends.forEach((partition, end) -> {
            positions.computeIfPresent(partition, (unused, from) -> {
                unproven.add(partition);
                return from.movedTo(end.offset(), end.atMs());
            });
            if (end.atMs() != null) guard.applied(partition, end.atMs());
        });
    }

    /**
     * Called before each transaction's first poll, even without records. Throws when records that are not applied may be gone; see {@link DeleteGuard} and
     * {@link LogGuard}.
     */
    void guard(SinkTaskContext context) {
        limitPoll(context);
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        log.checkQuiet(positions).forEach((partition, clear) -> {
            positions.computeIfPresent(partition, (unused, position) -> position.clearTo(clear));
            unstored.add(partition);
        });
        for (TopicPartition partition : unstored) {
            OffsetDocument position = positions.get(partition);
            updates.add(new UpdateOneModel<>(
                    store.at(partition, position), Updates.set(OffsetDocument.CLEAR, position.clear())));
        }
        guard.check(unread())
                .forEach((partition, atMs) -> updates.add(new UpdateOneModel<>(
                        store.at(partition, positions.get(partition)), // a failover may have taken it back
                        Updates.set(DeleteGuard.AT, new BsonDateTime(atMs)))));
        if (updates.isEmpty()) return;
        try {
            store.collection().withTimeout(PATIENCE_S, TimeUnit.SECONDS).bulkWrite(updates);
            unstored.clear();
        } catch (MongoException error) {
            // retried at the next poll; what is stored is older but still true
        }
    }

    /** Connect may otherwise poll for longer than the guards may wait. */
    private void limitPoll(SinkTaskContext context) {
        long soonMs = log.soonMs(positions);
        if (guard.isOn()) soonMs = soonMs < 0 ? guard.intervalMs() : Math.min(soonMs, guard.intervalMs());
        if (soonMs >= 0) context.timeout(soonMs);
    }

    /**
     * From time to time, finds partitions of which a failover has taken back a transaction that seemed to be committed: while no records of
     * them come, nothing else shows it. Uses their stored positions from now on. They have to be consumed again from there.
     */
    Set<TopicPartition> takenBack() {
        long now = clock.getAsLong();
        if (unproven.isEmpty() || now - checkedNs < CHECK_NS) return Set.of();
        checkedNs = now;
        try {
            unproven.removeAll(unproven(store.durable(), false).keySet());
            if (unproven.isEmpty()) return Set.of();
            // not behind where only the other members lag
            Map<TopicPartition, BsonDocument> behind =
                    unproven(store.collection().withReadConcern(ReadConcern.LOCAL), true);
            behind.forEach(this::load);
            return behind.keySet();
        } catch (MongoException error) {
            return Set.of(); // the next time
        }
    }

    /** The documents of unproven partitions, unless another task has taken them over, that are behind this task's positions, or are not. */
    private Map<TopicPartition, BsonDocument> unproven(MongoCollection<BsonDocument> from, boolean areBehind) {
        Map<TopicPartition, BsonDocument> documents =
                store.find(from.withTimeout(PATIENCE_S, TimeUnit.SECONDS), unproven);
        documents.entrySet().removeIf(entry -> {
            OffsetDocument stored = OffsetDocument.of(entry.getValue());
            OffsetDocument position = positions.get(entry.getKey());
            return stored.epoch() != position.epoch() || stored.offset() < position.offset() != areBehind;
        });
        return documents;
    }

    /**
     * Reads the stored positions, and uses them from now on. Throws {@link Fenced} when a partition has another owner. When it throws, it
     * changes nothing: a partition that is further back has to be consumed again, and the next call must report that.
     */
    Map<TopicPartition, Drift> drifts(Iterable<TopicPartition> partitions) throws Fenced {
        Map<TopicPartition, BsonDocument> documents = new HashMap<>();
        for (TopicPartition partition : partitions) {
            BsonDocument stored = store.find(partition);
            if (stored == null) throw new Fenced(partition, Owner.NONE);
            int owner = Long.compare(
                    OffsetDocument.of(stored).epoch(), positions.get(partition).epoch());
            if (owner != 0) throw new Fenced(partition, owner > 0 ? Owner.LATER : Owner.EARLIER);
            documents.put(partition, stored);
        }
        Map<TopicPartition, Drift> drifts = new HashMap<>();
        documents.forEach((partition, stored) -> {
            long expected = positions.get(partition).offset();
            int moved = Long.compare(load(partition, stored).offset(), expected);
            drifts.put(partition, moved == 0 ? Drift.NONE : moved > 0 ? Drift.AHEAD : Drift.BEHIND);
        });
        return drifts;
    }

    /** Uses what is stored of a partition from now on. Returns false when it has another owner. */
    boolean reload(TopicPartition partition) {
        try {
            drifts(List.of(partition));
            return true;
        } catch (Fenced error) {
            return false;
        }
    }

    /** This task does not own a partition any more. */
    static final class Fenced extends Exception {
        private static final long serialVersionUID = 1;

        private final Owner owner;

        private Fenced(TopicPartition partition, Owner owner) {
            super(partition.toString());
            this.owner = owner;
        }

        Owner owner() {
            return owner;
        }
    }
}
