package io.towpath.sink.ddl;

import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.exists;
import static com.mongodb.client.model.Filters.in;
import static com.mongodb.client.model.Filters.ne;

import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.UpdateOptions;
import io.towpath.sink.ddl.Step.Decision;
import io.towpath.sink.ddl.Step.Noted;
import io.towpath.sink.ddl.Step.Progress;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonDateTime;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.bson.conversions.Bson;

/**
 * What the destination stores of the schema changes of a pipeline: a document for each, from the arrival of its first partition on. Every
 * transition names the states from which it leads, so that a task that was displaced does not overwrite a newer one.
 */
final class ChangeStore {
    static final String COLLECTION = "schema_changes";
    /** How many changes that are over are kept. */
    static final int KEPT = 500;

    private static final String STATE = "state";
    private static final String REASON = "reason";
    /** When the destination last refused the change, as long as it is not over: also while it is tried again. */
    private static final String REFUSED = "refused";

    private static final String BEGAN = "began";
    private static final String ENDED = "ended";
    private static final String ARRIVED = "arrived";
    private static final String EXPECTED = "expected";
    private static final String UUID = "uuid";
    private static final String TARGET = "target";

    private final String pipeline;
    private final MongoCollection<BsonDocument> collection;
    private final MongoCollection<BsonDocument> positions;

    /** @param database where Towpath keeps its own state */
    ChangeStore(String pipeline, MongoClient client, String database) {
        this.pipeline = pipeline;
        this.collection = client.getDatabase(database)
                .getCollection(COLLECTION, BsonDocument.class)
                .withReadPreference(ReadPreference.primary())
                .withWriteConcern(WriteConcern.MAJORITY);
        this.positions = client.getDatabase(database)
                .getCollection("offsets", BsonDocument.class)
                .withReadPreference(ReadPreference.primary());
    }

    private BsonDocument id(String change) {
        return new BsonDocument("pipeline", new BsonString(pipeline)).append("id", new BsonString(change));
    }

    /** Of these changes, those of which something is stored. */
    Map<String, Progress> find(Collection<String> changes) {
        Map<String, Progress> found = new HashMap<>();
        collection
                .find(in("_id", changes.stream().map(this::id).toList()))
                .forEach(stored ->
                        found.put(stored.getDocument("_id").getString("id").getValue(), progress(stored)));
        return found;
    }

    private static Progress progress(BsonDocument stored) {
        String decision = stored.getString("decision", new BsonString("none")).getValue();
        Noted noted = stored.containsKey(BEGAN) ? new Noted(uuid(stored, UUID), uuid(stored, TARGET)) : null;
        State state = State.of(stored.getString(STATE).getValue());
        return new Progress(
                state,
                Decision.valueOf(decision.toUpperCase(Locale.ROOT)),
                stored.getNumber(ARRIVED, new BsonInt32(0)).intValue(),
                stored.getString(REASON, new BsonString("")).getValue(),
                state == State.REFUSED || stored.containsKey(REFUSED),
                noted);
    }

    private static BsonBinary uuid(BsonDocument stored, String name) {
        return stored.isBinary(name) ? stored.getBinary(name) : null;
    }

    /** So many of the change's partitions wait at it. */
    void arrived(Barrier barrier, String namespace, int arrived, int expected) {
        BsonDocument first = new BsonDocument("t", new BsonString(barrier.time()))
                .append("at", new BsonInt64(barrier.atMs()))
                .append("change", new RawBsonDocument(barrier.value()))
                .append("namespace", new BsonString(namespace))
                .append(STATE, new BsonString(State.WAITING.text()))
                .append("since", now());
        BsonDocument update = new BsonDocument("$setOnInsert", first)
                .append("$max", new BsonDocument(ARRIVED, new BsonInt32(arrived)))
                .append("$set", new BsonDocument(EXPECTED, new BsonInt32(expected)));
        collection.updateOne(eq("_id", id(barrier.change().id())), update, new UpdateOptions().upsert(true));
    }

    /**
     * The change is being made from now on, and is no longer left out. Returns false when it is to be, or when it is in another state than
     * this one. Why it was refused stays until it is over.
     *
     * @param met what it met, when it is begun for the first time; else null
     */
    boolean begin(String change, State from, Noted met) {
        BsonDocument set = new BsonDocument(STATE, new BsonString(State.RUNNING.text()));
        if (met != null)
            set.append(BEGAN, now())
                    .append(UUID, met.from() == null ? BsonNull.VALUE : met.from())
                    .append(TARGET, met.to() == null ? BsonNull.VALUE : met.to());
        Bson undecided = and(filter(change, Set.of(from)), exists(BEGAN, met == null), ne("decision", "skip"));
        BsonDocument update = new BsonDocument("$set", set);
        if (from != State.REFUSED) update.append("$unset", unset(REASON));
        return update(undecided, update);
    }

    private static BsonDocument unset(String... names) {
        BsonDocument unset = new BsonDocument();
        for (String name : names) unset.append(name, new BsonString(""));
        return unset;
    }

    /** Moves a change on from one of these states. Returns false when it is in another. */
    boolean move(String change, Set<State> from, State to, String reason) {
        BsonDocument set = new BsonDocument(STATE, new BsonString(to.text()));
        if (State.OVER.contains(to)) set.append(ENDED, now());
        if (to == State.REFUSED) set.append(REFUSED, now());
        if (!reason.isEmpty()) set.append(REASON, new BsonString(reason));
        BsonDocument update = new BsonDocument("$set", set);
        if (to != State.REFUSED) update.append("$unset", reason.isEmpty() ? unset(REASON, REFUSED) : unset(REFUSED));
        return update(filter(change, from), update);
    }

    /** Notes what is in the way of a change that is in this state. */
    void note(String change, State state, String reason) {
        update(
                filter(change, Set.of(state)),
                new BsonDocument("$set", new BsonDocument(REASON, new BsonString(reason))));
    }

    private boolean update(Bson filter, BsonDocument update) {
        return collection.updateOne(filter, update).getMatchedCount() == 1;
    }

    private Bson filter(String change, Set<State> states) {
        return and(
                eq("_id", id(change)),
                in(STATE, states.stream().map(State::text).toList()));
    }

    /** Removes changes that were over before the newest ones. A partition that still has to come to a change, or waits at it, keeps it. */
    void prune() {
        Bson over = and(
                eq("_id.pipeline", pipeline),
                in(STATE, State.OVER.stream().map(State::text).toList()));
        BsonDocument oldest = collection
                .find(over)
                .projection(new BsonDocument(ENDED, new BsonInt32(1)))
                .sort(new BsonDocument(ENDED, new BsonInt32(-1)))
                .skip(KEPT)
                .first();
        if (oldest == null) return;
        Set<BsonValue> kept = new HashSet<>();
        positions
                .distinct("barrier", eq("_id.pipeline", pipeline), BsonValue.class)
                .forEach(kept::add);
        BsonDocument allCame = BsonDocument.parse("{$expr: {$gte: ['$arrived', '$expected']}}");
        BsonDocument before = new BsonDocument(ENDED, new BsonDocument("$lte", oldest.get(ENDED)));
        collection.deleteMany(and(
                over,
                before,
                allCame,
                new BsonDocument("_id.id", new BsonDocument("$nin", new BsonArray(List.copyOf(kept))))));
    }

    private static BsonDateTime now() {
        return new BsonDateTime(System.currentTimeMillis());
    }
}
