package io.towpath.sink.model;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.bulk.BulkWriteError;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.sink.RandomUpdates;
import io.towpath.support.Raw;
import io.towpath.support.Server;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The total form against the operators, on the server. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class TotalUpdateServerTest {
    private static final int DOCUMENTS = 400;
    private static Server server;

    @BeforeAll
    static void connect() {
        server = new Server();
    }

    @AfterAll
    static void close() {
        server.close();
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5})
    void writesWhatTheOperatorsWriteAndIsNeverRefused(long seed) {
        RandomUpdates random = new RandomUpdates(seed);
        List<RawBsonDocument> documents = new ArrayList<>();
        List<Change.Update> updates = new ArrayList<>();
        for (int i = 0; i < DOCUMENTS; i++) {
            documents.add(new RawBsonDocument(random.document(i)));
            updates.add(random.update(i % 4 == 0));
        }
        MongoCollection<RawBsonDocument> operators = server.fresh("operators");
        MongoCollection<RawBsonDocument> total = server.fresh("total");
        operators.insertMany(documents);
        total.insertMany(operators.find().into(new ArrayList<>())); // with the times that the server filled in

        Set<Integer> refused = applyOperators(operators, documents, updates);
        Set<Integer> refusedTotal = apply(
                total,
                updates,
                update -> new UpdateOneModel<>(
                        new BsonDocument(), TotalUpdate.of(update).orElseThrow()));

        assertEquals(
                Set.of(),
                refusedTotal,
                () -> "refused: "
                        + refusedTotal.stream()
                                .map(i -> documents.get(i) + " " + updates.get(i))
                                .toList());
        int compared = 0;
        for (int i = 0; i < DOCUMENTS; i++) {
            if (refused.contains(i)) continue;
            compared++;
            byte[] expected = stored(operators, i);
            byte[] actual = stored(total, i);
            int at = i;
            assertTrue(Arrays.equals(expected, actual), () -> "document %s%nupdate %s%nwanted %s%nfound %s"
                    .formatted(
                            documents.get(at),
                            updates.get(at),
                            new RawBsonDocument(expected),
                            new RawBsonDocument(actual)));
        }
        assertTrue(
                compared > DOCUMENTS / 4 && refused.size() > DOCUMENTS / 20,
                "compared %d, refused %d".formatted(compared, refused.size()));
    }

    @ParameterizedTest
    @ValueSource(strings = {"a", "0", "$x"})
    void isNestedAsDeepAsTheServerTakesIt(String name) {
        MongoCollection<RawBsonDocument> collection = server.fresh("deep");
        collection.insertOne(new RawBsonDocument(Raw.document(Raw.int32("_id", 1))));
        int names = 0;
        for (String path = name; ; path += "." + name) {
            Change.Update update = new Change.Update(
                    new BsonDocument(path, new BsonInt32(++names)),
                    List.of(),
                    List.of(new Change.Truncation(path + "x", 1)));
            Optional<List<BsonDocument>> pipeline = TotalUpdate.of(update);
            if (pipeline.isEmpty()) break;
            collection.updateOne(new BsonDocument(), pipeline.get());
        }
        assertTrue(names > 20, "%d names".formatted(names));
    }

    /** The truncations first, as one write cannot hold both; what is refused or truncates no array is not compared. */
    private static Set<Integer> applyOperators(
            MongoCollection<RawBsonDocument> collection, List<RawBsonDocument> documents, List<Change.Update> updates) {
        List<Change.Update> truncations = updates.stream()
                .map(update -> new Change.Update(new BsonDocument(), List.of(), update.truncations()))
                .toList();
        List<Change.Update> others = updates.stream()
                .map(update -> new Change.Update(update.set(), update.unset(), List.of()))
                .toList();
        Set<Integer> refused = new HashSet<>();
        for (int i = 0; i < updates.size(); i++) {
            BsonDocument document = documents.get(i);
            // the operators take 00 for the index 0; the server never tells of an element so
            if (updates.get(i).set().keySet().stream().anyMatch(path -> ("." + path + ".").contains(".00.")))
                refused.add(i);
            if (!updates.get(i).truncations().stream().allMatch(cut -> isArray(document, cut.path()))) refused.add(i);
        }
        for (List<Change.Update> step : List.of(truncations, others)) {
            refused.addAll(apply(
                    collection,
                    step,
                    update -> new UpdateOneModel<>(new BsonDocument(), WriteModels.operators(update))));
        }
        return refused;
    }

    private static boolean isArray(BsonDocument document, String path) {
        BsonValue value = document;
        for (String name : path.split("\\.", -1)) {
            if (value.isDocument()) value = value.asDocument().get(name);
            else if (value.isArray()
                    && name.matches("\\d+")
                    && Integer.parseInt(name) < value.asArray().size()) {
                value = value.asArray().get(Integer.parseInt(name));
            } else value = null;
            if (value == null) return false;
        }
        return value.isArray();
    }

    private interface Write {
        UpdateOneModel<RawBsonDocument> of(Change.Update update);
    }

    private static Set<Integer> apply(
            MongoCollection<RawBsonDocument> collection, List<Change.Update> updates, Write write) {
        List<WriteModel<RawBsonDocument>> models = new ArrayList<>();
        List<Integer> ids = new ArrayList<>();
        for (int i = 0; i < updates.size(); i++) {
            if (updates.get(i).isEmpty()) continue;
            BsonDocument filter = new BsonDocument("_id", new BsonInt32(i));
            UpdateOneModel<RawBsonDocument> model = write.of(updates.get(i));
            models.add(
                    model.getUpdate() != null
                            ? new UpdateOneModel<>(filter, model.getUpdate())
                            : new UpdateOneModel<>(filter, model.getUpdatePipeline()));
            ids.add(i);
        }
        Set<Integer> refused = new HashSet<>();
        if (models.isEmpty()) return refused;
        try {
            collection.bulkWrite(models, new BulkWriteOptions().ordered(false));
        } catch (MongoBulkWriteException error) {
            for (BulkWriteError each : error.getWriteErrors()) {
                refused.add(ids.get(each.getIndex()));
            }
        }
        return refused;
    }

    private static byte[] stored(MongoCollection<RawBsonDocument> collection, int id) {
        return BsonBytes.of(
                collection.find(new BsonDocument("_id", new BsonInt32(id))).first());
    }
}
