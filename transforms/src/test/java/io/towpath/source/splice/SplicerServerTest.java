package io.towpath.source.splice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.JsonArrays;
import io.towpath.sink.ChangeEvents;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.support.Fuzz;
import io.towpath.support.LogModel;
import io.towpath.support.Server;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The change events of a server, by all of its operators for arrays. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class SplicerServerTest {
    private static final int DOCUMENTS = 4;
    /** The shapes that make the server log a whole array; %1$s is its path, %2$s an element, %3$d a place in it. */
    private static final String[] WHOLE = {
        "{$push: {'%1$s': {$each: [%2$s], $slice: -40}}}",
        "{$push: {'%1$s': {$each: [%2$s], $position: 0, $slice: 40}}}",
        "{$push: {'%1$s': {$each: [%2$s, 1], $position: %3$d}}}",
        "{$push: {'%1$s': {$each: [%2$s, %2$s], $position: %3$d, $slice: -40}}}",
        "{$pop: {'%1$s': -1}}",
        "{$pull: {'%1$s': {n: {$mod: [17, %3$d]}}}}",
        "{$pullAll: {'%1$s': [1, 2]}}"
    };

    private static final String[] OTHERS = {
        "{$push: {'%1$s': %2$s}}",
        "{$pop: {'%1$s': 1}}",
        "{$set: {'%1$s.%3$d': %2$s}}",
        "{$set: {'%1$s.%3$d': %2$s, count: %3$d}}",
        "{$unset: {'%1$s.%3$d': ''}}",
        "{$inc: {'%1$s.%3$d.n': 1}}",
        "{$push: {'%1$s.%3$d.inner': 1}}",
        "{$set: {'%1$s': [%2$s, 2]}}",
        "{$unset: {'%1$s': ''}}",
        "{$set: {a: {list: []}, count: %3$d}}",
        "{$rename: {list: 'more', 'a.list': 'a.more'}}",
        "{$push: {list: {$each: [%2$s], $slice: -40}, 'a.list': {$each: [%2$s], $position: 0, $slice: 40}}}",
        "[{$set: {'%1$s': {$slice: ['$%1$s', %3$d, 40]}}}]",
        "[{$set: {'%1$s': {$slice: ['$%1$s', 20]}}}]",
        "[{$set: {'%1$s': {$concatArrays: [[%2$s], '$%1$s']}}}]",
        "[{$set: {'%1$s': {$concatArrays: [{$slice: ['$%1$s', 12]}, [%2$s]]}}}]"
    };

    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("spliced");
    private final SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1));
    private final Splicer splicer = new Splicer(1 << 20, metrics, new SpliceTotals(null));
    private final Random random = new Random(Fuzz.seed());

    @BeforeEach
    void insert() {
        for (int id = 0; id < DOCUMENTS; id++) collection.insertOne(document(id));
    }

    @AfterEach
    void close() {
        metrics.close();
        server.close();
    }

    private RawBsonDocument document(int id) {
        BsonDocument document = new BsonDocument("_id", new BsonInt32(id))
                .append("list", array())
                .append("a", new BsonDocument("list", array()));
        return new RawBsonDocument(BsonBytes.of(document));
    }

    private BsonArray array() {
        return new BsonArray(
                IntStream.range(0, 40).mapToObj(unused -> (BsonValue) element()).toList());
    }

    private BsonDocument element() {
        return new BsonDocument("n", new BsonInt32(random.nextInt(10_000)))
                .append("text", new BsonString("x".repeat(random.nextInt(60))));
    }

    private void update(int id, String shape, String path) {
        String text = shape.formatted(path, element().toJson(), random.nextInt(17));
        try {
            if (text.startsWith("{")) {
                collection.updateOne(Filters.eq(id), BsonDocument.parse(text));
            } else {
                List<BsonDocument> stages = JsonArrays.parse(text).stream()
                        .map(BsonValue::asDocument)
                        .toList();
                collection.updateOne(Filters.eq(id), stages);
            }
        } catch (MongoWriteException refused) {
            // it is about a field in an element that has none
        }
    }

    /** The value that the log gets for an event. */
    private byte[] emitted(BsonDocument event) {
        byte[] key = CanonicalKey.of(BsonBytes.of(event.getDocument("documentKey")));
        byte[] value = ChangeEvents.change(event).encode();
        return (byte[]) splicer.applyTo(Records.record(key, value)).value();
    }

    private static int splices(byte[] value) {
        return Change.decode(value) instanceof Change.Update update
                ? update.splices().size()
                : 0;
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2, 3, 4, 5, 6})
    void afterTheFirstTimeEachWholeArrayIsASplice(int shape) {
        List<BsonDocument> events = ChangeEvents.during(collection, () -> {
            collection.updateOne(
                    Filters.eq(0), BsonDocument.parse("{$push: {list: {$each: [1, 2, 1], $position: 5}}}"));
            for (int i = 0; i < 5; i++) update(0, WHOLE[shape], "list");
        });
        assertEquals(0, splices(emitted(events.get(0))));
        for (BsonDocument event : events.subList(1, events.size() - 1)) {
            assertEquals(1, splices(emitted(event)), event::toJson);
        }
        assertTrue(events.size() > 2);
    }

    @Test
    @Tag("nightly")
    void aReaderHasTheDocumentsOfTheServer() {
        Map<BsonValue, LogModel> whole = copies();
        Map<BsonValue, LogModel> spliced = copies();
        List<BsonDocument> events = ChangeEvents.during(collection, () -> {
            for (int i = 0; i < Fuzz.times(500); i++) change(random.nextInt(DOCUMENTS));
        });
        int splices = 0;
        for (BsonDocument event : events.subList(0, events.size() - 1)) {
            BsonValue id = event.getDocument("documentKey").get("_id");
            byte[] value = emitted(event);
            splices += splices(value);
            whole.get(id).apply(ChangeEvents.change(event).encode());
            spliced.get(id).apply(value);
            assertArrayEquals(whole.get(id).bytes(), spliced.get(id).bytes(), event::toJson);
        }
        System.out.printf("server: %d events, %d splices%n", events.size(), splices);
        assertTrue(splices > events.size() / 6);
        collection.find(Filters.type("_id", "int")).forEach(document -> {
            BsonDocument copy = spliced.get(document.get("_id")).document();
            assertEquals(document, copy);
        });
    }

    private Map<BsonValue, LogModel> copies() {
        Map<BsonValue, LogModel> copies = new HashMap<>();
        for (RawBsonDocument document : collection.find()) {
            copies.put(document.get("_id"), new LogModel());
            copies.get(document.get("_id")).apply(BsonBytes.of(document));
        }
        return copies;
    }

    private void change(int id) {
        String path = random.nextBoolean() ? "list" : "a.list";
        int kind = random.nextInt(100);
        boolean isReset = collection.countDocuments(Filters.and(Filters.eq(id), Filters.type(path, "array"))) == 0;
        if (kind < 2 || isReset) {
            collection.replaceOne(Filters.eq(id), document(id));
        } else if (kind < 4) {
            collection.deleteOne(Filters.eq(id));
            collection.insertOne(document(id));
        } else if (kind < 60) {
            update(id, WHOLE[random.nextInt(WHOLE.length)], path);
        } else {
            update(id, OTHERS[random.nextInt(OTHERS.length)], path);
        }
    }
}
