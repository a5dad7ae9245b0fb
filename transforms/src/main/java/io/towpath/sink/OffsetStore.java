package io.towpath.sink;

import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.in;

import com.mongodb.MongoCommandException;
import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.ReturnDocument;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.conversions.Bson;

/** The offset documents of a pipeline at the destination: one per partition. */
final class OffsetStore {
    static final String COLLECTION = "offsets";

    private final String pipeline;
    private final MongoClient client;
    private final MongoCollection<BsonDocument> collection;

    OffsetStore(String pipeline, MongoClient client) {
        this.pipeline = pipeline;
        this.client = client;
        this.collection = client.getDatabase(Destination.DATABASE)
                .getCollection(COLLECTION, BsonDocument.class)
                .withReadPreference(ReadPreference.primary());
    }

    MongoCollection<BsonDocument> collection() {
        return collection;
    }

    /** Reads and writes what no failover takes back. */
    MongoCollection<BsonDocument> durable() {
        return collection.withReadConcern(ReadConcern.MAJORITY).withWriteConcern(WriteConcern.MAJORITY);
    }

    /** The document of a partition; null when there is none. */
    BsonDocument find(TopicPartition partition) {
        return collection.find(OffsetDocument.filter(pipeline, partition)).first();
    }

    /** The position of a partition; null when there is none. */
    OffsetDocument position(TopicPartition partition) {
        BsonDocument stored = find(partition);
        return stored == null ? null : OffsetDocument.of(stored);
    }

    /** The documents of those of these partitions that have one. */
    Map<TopicPartition, BsonDocument> find(MongoCollection<BsonDocument> from, Collection<TopicPartition> partitions) {
        Map<TopicPartition, BsonDocument> documents = new HashMap<>();
        BsonArray ids = new BsonArray();
        partitions.forEach(
                partition -> ids.add(OffsetDocument.filter(pipeline, partition).get("_id")));
        for (BsonDocument stored : from.find(in("_id", ids))) {
            BsonDocument id = stored.getDocument("_id");
            TopicPartition partition = new TopicPartition(
                    id.getString("topic").getValue(), id.getInt32("partition").getValue());
            documents.put(partition, stored);
        }
        return documents;
    }

    /**
     * Takes a partition over from its owner, and returns its document.
     *
     * @param times what {@link DeleteGuard#opening} sets
     */
    BsonDocument takeOver(TopicPartition partition, BsonDocument session, BsonDocument times) {
        endTransaction(find(partition), session);
        return durable()
                .findOneAndUpdate(
                        OffsetDocument.filter(pipeline, partition),
                        OffsetDocument.takenBy(session, times),
                        new FindOneAndUpdateOptions().upsert(true).returnDocument(ReturnDocument.AFTER));
    }

    /** The transaction of a killed owner would hold its documents until the server ends it after a minute. */
    private void endTransaction(BsonDocument stored, BsonDocument session) {
        if (stored == null
                || !stored.containsKey(OffsetDocument.SESSION)
                || stored.get(OffsetDocument.SESSION).equals(session)) return;
        try {
            client.getDatabase(Destination.DATABASE)
                    .runCommand(new BsonDocument(
                            "killSessions", new BsonArray(List.of(stored.get(OffsetDocument.SESSION)))));
        } catch (MongoCommandException error) {
            // the server will do it
        }
    }

    /** Matches the document of a partition unless another task has taken it over. */
    Bson owned(TopicPartition partition, OffsetDocument position) {
        return and(OffsetDocument.filter(pipeline, partition), eq(OffsetDocument.EPOCH, position.epoch()));
    }

    /** Matches the document of a partition at exactly this position. */
    Bson at(TopicPartition partition, OffsetDocument position) {
        return and(owned(partition, position), eq(OffsetDocument.OFFSET, position.offset()));
    }
}
