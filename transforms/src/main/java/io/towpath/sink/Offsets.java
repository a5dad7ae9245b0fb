package io.towpath.sink;

import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;

import com.mongodb.MongoCommandException;
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
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.conversions.Bson;

/**
 * How far each partition is applied, as the destination has it: one document a partition, written by the transactions that apply the
 * records. Its epoch is its owner's: who opens a partition takes the next one, and no one else's transaction goes through any more.
 */
final class Offsets {
    static final String COLLECTION = "offsets";
    static final String OFFSET = "offset";
    static final String EPOCH = "epoch";
    private static final String SESSION = "session";

    /** What is the case with a transaction that did not find the offsets where it expected them. */
    enum Standing {
        /** They are where they were expected. */
        SAME,
        /** They are further on: a transaction thought to have failed has not. */
        AHEAD,
        /** They are further back: a failover has taken back a transaction. */
        BEHIND
    }

    private record Position(long epoch, long offset) {}

    private final String pipeline;
    private final MongoClient client;
    private final MongoCollection<BsonDocument> collection;
    private final Map<TopicPartition, Position> positions = new HashMap<>();

    Offsets(String pipeline, MongoClient client) {
        this.pipeline = pipeline;
        this.client = client;
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
                        Updates.combine(
                                Updates.inc(EPOCH, 1L),
                                Updates.set(SESSION, session),
                                Updates.setOnInsert(OFFSET, new BsonInt64(0))),
                        new FindOneAndUpdateOptions().upsert(true).returnDocument(ReturnDocument.AFTER));
        positions.put(partition, position(taken));
        return offset(taken);
    }

    /** A killed owner's transaction would hold its documents until the server ends it after a minute. */
    private void endTransaction(BsonDocument found, BsonDocument session) {
        if (found == null || !found.containsKey(SESSION) || found.get(SESSION).equals(session)) return;
        try {
            client.getDatabase(Destination.DATABASE)
                    .runCommand(new BsonDocument("killSessions", new BsonArray(List.of(found.get(SESSION)))));
        } catch (MongoCommandException error) {
            // then the server does so itself
        }
    }

    void forget(TopicPartition partition) {
        positions.remove(partition);
    }

    /** The offset of the next record to apply; empty for a partition that is not this task's. */
    OptionalLong next(TopicPartition partition) {
        Position position = positions.get(partition);
        return position == null ? OptionalLong.empty() : OptionalLong.of(position.offset());
    }

    /** The offsets of the next records to apply, of all of this task's partitions. */
    Map<TopicPartition, Long> all() {
        Map<TopicPartition, Long> all = new HashMap<>();
        positions.forEach((partition, position) -> all.put(partition, position.offset()));
        return all;
    }

    /** Within a transaction, move partitions on to these offsets. False when one is not where it should be: see {@link #standing}. */
    boolean advance(ClientSession session, Map<TopicPartition, Long> to) {
        List<UpdateOneModel<BsonDocument>> updates = new ArrayList<>();
        to.forEach((partition, offset) -> {
            Position from = positions.get(partition);
            Bson expected = and(id(partition), eq(EPOCH, from.epoch()), eq(OFFSET, from.offset()));
            updates.add(new UpdateOneModel<>(expected, Updates.set(OFFSET, new BsonInt64(offset))));
        });
        return collection.bulkWrite(session, updates).getMatchedCount() == updates.size();
    }

    /** The transaction has been committed. */
    void advanced(Map<TopicPartition, Long> to) {
        to.forEach((partition, offset) ->
                positions.computeIfPresent(partition, (unused, position) -> new Position(position.epoch(), offset)));
    }

    /** Read what is stored, which holds from now on. Throws {@link Fenced} when a partition has another owner. */
    Map<TopicPartition, Standing> standing(Iterable<TopicPartition> partitions) throws Fenced {
        Map<TopicPartition, Standing> standings = new HashMap<>();
        for (TopicPartition partition : partitions) {
            BsonDocument stored = collection.find(id(partition)).first();
            Position expected = positions.get(partition);
            if (stored == null || position(stored).epoch() != expected.epoch()) throw new Fenced(partition);
            positions.put(partition, position(stored));
            int moved = Long.compare(offset(stored), expected.offset());
            standings.put(partition, moved == 0 ? Standing.SAME : moved > 0 ? Standing.AHEAD : Standing.BEHIND);
        }
        return standings;
    }

    private Bson id(TopicPartition partition) {
        return new BsonDocument(
                "_id",
                new BsonDocument("pipeline", new BsonString(pipeline))
                        .append("topic", new BsonString(partition.topic()))
                        .append("partition", new BsonInt32(partition.partition())));
    }

    private static Position position(BsonDocument stored) {
        return new Position(stored.getNumber(EPOCH).longValue(), offset(stored));
    }

    private static long offset(BsonDocument stored) {
        return stored.getNumber(OFFSET).longValue();
    }

    /** Another task has taken a partition over. */
    static final class Fenced extends Exception {
        private static final long serialVersionUID = 1;

        private Fenced(TopicPartition partition) {
            super(partition.toString());
        }
    }
}
