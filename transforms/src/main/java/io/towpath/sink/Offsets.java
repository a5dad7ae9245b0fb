package io.towpath.sink;

import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.bson.BsonArray;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.conversions.Bson;

/**
 * How far each partition is applied, as the destination has it: one document a partition, written by the transactions that apply the
 * records. Its epoch is its owner's: who opens a partition takes the next one, and no one else's transaction goes through any more.
 */
final class Offsets {
    static final String COLLECTION = "offsets";
    private static final int PATIENCE_S = 2;

    /** What is the case with a transaction that did not find the offsets where it expected them. */
    enum Standing {
        /** They are where they were expected. */
        SAME,
        /** They are further on: a transaction thought to have failed has not. */
        AHEAD,
        /** They are further back: a failover has taken back a transaction. */
        BEHIND
    }

    /**
     * Where a transaction ends in a partition.
     *
     * @param offset of the next record
     * @param atMs the broker's time of the last one; null if it has none
     */
    record End(long offset, Long atMs) {}

    private final String pipeline;
    private final MongoClient client;
    private final MongoCollection<BsonDocument> collection;
    private final DeleteGuard guard;
    private final LogGuard log;
    private final Map<TopicPartition, OffsetDocument> positions = new HashMap<>();

    Offsets(String pipeline, MongoClient client, DeleteGuard guard, LogGuard log) {
        this.pipeline = pipeline;
        this.client = client;
        this.guard = guard;
        this.log = log;
        this.collection = client.getDatabase(Destination.DATABASE)
                .getCollection(COLLECTION, BsonDocument.class)
                .withReadPreference(ReadPreference.primary());
    }

    /** Take a partition over from whoever had it. Returns the offset of the next record to apply. */
    long open(TopicPartition partition, BsonDocument session) {
        Bson id = id(partition);
        endTransaction(collection.find(id).first(), session);
        BsonDocument taken = collection
                .withWriteConcern(WriteConcern.MAJORITY)
                .findOneAndUpdate(
                        id,
                        OffsetDocument.takenBy(session, guard.opening(System.currentTimeMillis())),
                        new FindOneAndUpdateOptions().upsert(true).returnDocument(ReturnDocument.AFTER));
        return found(partition, taken).offset();
    }

    private OffsetDocument found(TopicPartition partition, BsonDocument stored) {
        OffsetDocument position = OffsetDocument.of(stored);
        positions.put(partition, position);
        guard.found(partition, stored);
        log.moved(partition, position);
        return position;
    }

    /**
     * Partitions that were just opened: their log goes on at their positions, and its topics are noted in them. Throws
     * {@link LogBounds.Broken}, and {@link LogGuard.Unanswered}.
     */
    void requireLog(Collection<TopicPartition> opened) {
        Map<TopicPartition, OffsetDocument> mine = new HashMap<>(positions);
        mine.keySet().retainAll(opened);
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        log.opened(mine).forEach((partition, id) -> {
            if (id.equals(mine.get(partition).topicId())) return;
            updates.add(new UpdateOneModel<>(owned(partition), Updates.set(OffsetDocument.TOPIC_ID, id)));
            positions.computeIfPresent(partition, (unused, position) -> position.inTopic(id));
        });
        if (!updates.isEmpty())
            collection.withWriteConcern(WriteConcern.MAJORITY).bulkWrite(updates);
    }

    /** These came. Throws {@link LogBounds.Broken} when they are not what comes next. */
    void came(List<SinkRecord> records) {
        log.came(records, positions);
    }

    /** A killed owner's transaction would hold its documents until the server ends it after a minute. */
    private void endTransaction(BsonDocument found, BsonDocument session) {
        if (found == null
                || !found.containsKey(OffsetDocument.SESSION)
                || found.get(OffsetDocument.SESSION).equals(session)) return;
        try {
            client.getDatabase(Destination.DATABASE)
                    .runCommand(new BsonDocument(
                            "killSessions", new BsonArray(List.of(found.get(OffsetDocument.SESSION)))));
        } catch (MongoCommandException error) {
            // then the server does so itself
        }
    }

    void forget(TopicPartition partition) {
        positions.remove(partition);
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

    /**
     * Within a transaction, move partitions on to these ends. False when one is not where it should be: see {@link #standing}. Throws as
     * {@link LogGuard#require}.
     */
    boolean advance(ClientSession session, Map<TopicPartition, End> to) {
        log.require(positions);
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        to.forEach((partition, end) -> {
            BsonDocument set = new BsonDocument(OffsetDocument.OFFSET, new BsonInt64(end.offset()));
            if (end.atMs() != null) set.append(OffsetDocument.LAST_AT, new BsonDateTime(end.atMs()));
            if (guard.watches(partition) && end.atMs() != null)
                set.append(DeleteGuard.AT, new BsonDateTime(end.atMs()));
            Bson expected = and(
                    owned(partition),
                    eq(OffsetDocument.OFFSET, positions.get(partition).offset()));
            updates.add(new UpdateOneModel<>(expected, OffsetDocument.set(set)));
        });
        return collection.bulkWrite(session, updates).getMatchedCount() == updates.size();
    }

    /** The transaction has been committed. */
    void advanced(Map<TopicPartition, End> to) {
        to.forEach((partition, end) -> {
            positions.computeIfPresent(partition, (unused, from) -> from.movedTo(end.offset(), end.atMs()));
            if (end.atMs() != null) guard.applied(partition, end.atMs());
        });
    }

    /**
     * To be called at each poll, whatever it brought. Throws when records may be gone that are not applied; see {@link DeleteGuard} and
     * {@link LogGuard}.
     */
    void guard(SinkTaskContext context) {
        comeBack(context); // Connect may poll for longer
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        log.look(positions).forEach((partition, clear) -> {
            Bson expected = and(
                    owned(partition),
                    eq(OffsetDocument.OFFSET, positions.get(partition).offset()));
            updates.add(new UpdateOneModel<>(expected, Updates.set(OffsetDocument.CLEAR, clear)));
            positions.computeIfPresent(partition, (unused, position) -> position.clearTo(clear));
        });
        guard.look(all())
                .forEach((partition, atMs) -> updates.add(
                        new UpdateOneModel<>(owned(partition), Updates.set(DeleteGuard.AT, new BsonDateTime(atMs)))));
        if (updates.isEmpty()) return;
        try {
            collection.withTimeout(PATIENCE_S, TimeUnit.SECONDS).bulkWrite(updates);
        } catch (MongoException error) {
            // the next time; what is stored is older and no less true
        }
    }

    private void comeBack(SinkTaskContext context) {
        long soonMs = log.soonMs(positions);
        if (guard.isOn()) soonMs = soonMs < 0 ? guard.everyMs() : Math.min(soonMs, guard.everyMs());
        if (soonMs >= 0) context.timeout(soonMs);
    }

    /**
     * Read what is stored, which holds from now on. Throws {@link Fenced} when a partition has another owner. When it throws, nothing of
     * it holds: a partition that is further back is to be read again, and whoever asks next must hear of it.
     */
    Map<TopicPartition, Standing> standing(Iterable<TopicPartition> partitions) throws Fenced {
        Map<TopicPartition, BsonDocument> all = new HashMap<>();
        for (TopicPartition partition : partitions) {
            BsonDocument stored = collection.find(id(partition)).first();
            if (stored == null
                    || OffsetDocument.of(stored).epoch()
                            != positions.get(partition).epoch()) throw new Fenced(partition);
            all.put(partition, stored);
        }
        Map<TopicPartition, Standing> standings = new HashMap<>();
        all.forEach((partition, stored) -> {
            long expected = positions.get(partition).offset();
            int moved = Long.compare(found(partition, stored).offset(), expected);
            standings.put(partition, moved == 0 ? Standing.SAME : moved > 0 ? Standing.AHEAD : Standing.BEHIND);
        });
        return standings;
    }

    private Bson id(TopicPartition partition) {
        return OffsetDocument.filter(pipeline, partition);
    }

    /** Its document, while no other task has taken it over. */
    private Bson owned(TopicPartition partition) {
        return and(
                id(partition), eq(OffsetDocument.EPOCH, positions.get(partition).epoch()));
    }

    /** Another task has taken a partition over. */
    static final class Fenced extends Exception {
        private static final long serialVersionUID = 1;

        private Fenced(TopicPartition partition) {
            super(partition.toString());
        }
    }
}
