package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.WriteModel;
import io.towpath.fold.Fold;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.WholeBson;
import io.towpath.sink.model.WriteModels;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;

/** What a sink concludes from a server's replies: which write is refused, and which found no document, or another one. */
class WriteCommandTest {
    private static final MongoNamespace NAMESPACE = new MongoNamespace("db.c");

    /** The ids of the documents that the server has, and how long the array in each is. */
    private final Map<Integer, Integer> documents = new HashMap<>();

    /** How many writes each command had. */
    private final List<Integer> commands = new ArrayList<>();

    @Test
    void whatIsBehindARefusedWriteIsNotSent() {
        documents.put(3, 0);
        List<Write> inserts = IntStream.rangeClosed(1, 4)
                .mapToObj(id -> write(id, Write.Kind.INSERT, WriteModels.insert(bytes("{_id: %d}".formatted(id))), 1))
                .toList();
        WriteCommand.Result result = run(inserts, false);
        assertEquals(Optional.of(new WriteCommand.Refusal(inserts.get(2), 11000, "there")), result.refusal());
        assertEquals(List.of(4), commands);

        commands.clear();
        List<Write> large = IntStream.rangeClosed(2, 4)
                .mapToObj(id ->
                        write(id, Write.Kind.INSERT, WriteModels.insert(bytes("{_id: %d}".formatted(id))), 2 << 20))
                .toList();
        result = run(large, false);
        assertEquals(1, result.documents());
        assertEquals(large.get(1), result.refusal().orElseThrow().write());
        assertEquals(List.of(1, 1), commands, "the third is not sent");
    }

    @Test
    void anUpdateThatFindsAnotherArrayIsFoundBySendingEachAlone() {
        documents.putAll(Map.of(1, 5, 2, 4, 4, 0));
        List<Write> updates = List.of(spliced(1), spliced(2), spliced(3), plain(4));
        WriteCommand.Result result = run(updates, true);
        assertEquals(updates.subList(0, 2), result.missed(), "any of those whose documents are there");
        assertEquals(List.of(4), commands);

        for (int id : new int[] {1, 2}) {
            commands.clear();
            Write suspect = spliced(id);
            result = run(List.of(plain(4), suspect, spliced(3)), true, suspect.document());
            assertEquals(id == 1 ? List.of() : List.of(suspect), result.missed());
            assertEquals(id == 1 ? List.of(1, 1, 1) : List.of(1, 1), commands, "nothing is sent behind a miss");
        }
    }

    @Test
    void aReplacementMakesItsDocument() {
        Write replacement = write(1, Write.Kind.CHANGE, WriteModels.replace(bytes("{_id: 1}")), 1);
        WriteCommand.Result result = run(List.of(replacement, plain(2)), false);
        assertEquals(1, result.documents());
        assertEquals(Map.of(1, 0), documents);
    }

    @Test
    void anUpdateWithoutADocumentHasNotMissed() {
        documents.put(1, 5);
        List<Write> updates = List.of(spliced(1), spliced(2), plain(3), delete(4));
        WriteCommand.Result result = run(updates, true);
        assertEquals(List.of(), result.missed());
        assertEquals(updates.subList(1, 3), result.foundNone());
        assertEquals(1, result.documents());
        assertEquals(List.of(3, 1), commands);
        result = run(updates, false);
        assertEquals(List.of(), result.missed());
        assertEquals(List.of(), result.foundNone(), "no one wants to know");
        assertEquals(List.of(), run(List.of(spliced(1)), true).foundNone());
    }

    @Test
    void aMissIsAmongFewConditionalWrites() {
        List<Write> updates = IntStream.range(0, 1_200)
                .mapToObj(id -> id % 2 == 0 ? spliced(id) : plain(id))
                .toList();
        for (int id = 0; id < 1_200; id++) documents.put(id, id == 1_100 ? 4 : 5);
        WriteCommand.Result result = run(updates, true);
        assertEquals(List.of(1_000, 200), commands);
        assertEquals(
                updates.subList(1_000, 1_200).stream()
                        .filter(Write::isConditional)
                        .toList(),
                result.missed());
        assertEquals(1_199, result.documents());

        documents.keySet().removeIf(id -> id > 550);
        result = run(updates, true);
        assertEquals(updates.subList(551, 1_200), result.foundNone());
    }

    private WriteCommand.Result run(List<Write> writes, boolean looksForMissing, Write.DocumentId... suspects) {
        Waves.Bulk bulk = new Waves.Bulk(NAMESPACE, writes);
        return new WriteCommand(client(), null, bulk, Set.of(suspects), looksForMissing).run(writes);
    }

    private static Write spliced(int id) {
        Fold.Folded.Update update =
                new Fold.Folded.Update(bytes("{$push: {l: {$each: [], $slice: 4}}}"), false, Map.of("l", 5));
        return new Write(
                List.of(),
                document(id),
                Write.Kind.CHANGE,
                WriteModels.update(filter(id), update),
                1,
                false,
                update.lengths(),
                false);
    }

    private static Write plain(int id) {
        Fold.Folded.Update update = new Fold.Folded.Update(bytes("{$set: {a: 1}}"), false, Map.of());
        return write(id, Write.Kind.CHANGE, WriteModels.update(filter(id), update), 1);
    }

    private static Write delete(int id) {
        return write(id, Write.Kind.DELETE, new DeleteOneModel<>(filter(id)), 0);
    }

    private static Write write(int id, Write.Kind kind, WriteModel<BsonDocument> model, int size) {
        return new Write(List.of(), document(id), kind, model, size, false);
    }

    private static Write.DocumentId document(int id) {
        return new Write.DocumentId(NAMESPACE, CanonicalKey.of(bytes("{_id: %d}".formatted(id))));
    }

    private static BsonDocument filter(int id) {
        return WriteModels.filter(document(id).id()).orElseThrow();
    }

    private static byte[] bytes(String json) {
        return BsonBytes.of(BsonDocument.parse(json));
    }

    /** Does as the server does with these commands. */
    private BsonDocument reply(BsonDocument command) {
        String list = Arrays.stream(Write.Kind.values())
                .filter(kind -> kind.command().equals(command.getFirstKey()))
                .map(Write.Kind::writes)
                .collect(Collectors.joining());
        commands.add(command.getArray(list).size());
        WholeBson.require(BsonBytes.of(command));
        assertTrue(command.getBoolean("ordered").getValue());
        int done = 0;
        for (BsonValue each : command.getArray(list)) {
            BsonDocument write = each.asDocument();
            boolean isInsert = write.containsKey("_id");
            BsonDocument filter = isInsert ? write : write.getDocument("q");
            Integer length = documents.get(id(filter));
            if (isInsert && length != null) {
                BsonDocument error = new BsonDocument("index", new BsonInt32(done))
                        .append("code", new BsonInt32(11000))
                        .append("errmsg", new BsonString("there"));
                return new BsonDocument("n", new BsonInt32(done)).append("writeErrors", new BsonArray(List.of(error)));
            }
            boolean isFound = length != null
                    && (!filter.containsKey("l")
                            || filter.getDocument("l").getInt32("$size").getValue() == length);
            if (list.equals("updates")) assertFalse(write.getDocument("u").isEmpty());
            boolean isUpsert = length == null
                    && list.equals("updates")
                    && write.getBoolean("upsert").getValue();
            if (isUpsert) documents.put(id(filter), 0);
            if (isInsert || isFound || isUpsert) done++;
        }
        return new BsonDocument("n", new BsonInt32(done));
    }

    private static int id(BsonDocument document) {
        return document.getNumber("_id").intValue();
    }

    private MongoClient client() {
        return fake(
                MongoClient.class,
                (client, ofClient, unused) -> fake(MongoDatabase.class, (it, method, given) -> {
                    if (method.getName().equals("runCommand")) return reply((BsonDocument) given[1]);
                    return fake(MongoCollection.class, (collection, find, query) -> found((BsonDocument) query[1]));
                }));
    }

    @SuppressWarnings("unchecked")
    private FindIterable<RawBsonDocument> found(BsonDocument filter) {
        return fake(FindIterable.class, (found, method, given) -> {
            if (!method.getName().equals("forEach")) return found;
            filter.getArray("$or").stream()
                    .map(each -> id(each.asDocument()))
                    .filter(documents::containsKey)
                    .forEach(id -> ((Consumer<RawBsonDocument>) given[0])
                            .accept(new RawBsonDocument(bytes("{_id: %d}".formatted(id)))));
            return null;
        });
    }

    private static <T> T fake(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
