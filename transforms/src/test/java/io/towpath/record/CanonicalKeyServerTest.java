package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.client.model.InsertManyOptions;
import io.towpath.support.Server;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The server is asked which {@code _id}s are equal: the second of two equal ones is a duplicate key. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class CanonicalKeyServerTest {
    private static final int DOCUMENTS = 3000;
    private static final int DUPLICATE_KEY = 11000;

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5})
    void equalKeysAreWhatTheServerHoldsEqual(long seed) {
        NearlyEqual random = new NearlyEqual(seed);
        List<RawBsonDocument> documents = new ArrayList<>();
        Map<ByteBuffer, Integer> first = new HashMap<>();
        Map<Integer, Integer> repeated = new HashMap<>();
        for (int i = 0; i < DOCUMENTS; i++) {
            byte[] document = random.document();
            documents.add(new RawBsonDocument(document));
            Integer earlier = first.putIfAbsent(ByteBuffer.wrap(CanonicalKey.of(document)), i);
            if (earlier != null) repeated.put(i, earlier);
        }

        Set<Integer> refused = insert(documents);

        Set<Integer> differing = new TreeSet<>(refused);
        differing.addAll(repeated.keySet());
        differing.removeIf(i -> refused.contains(i) && repeated.containsKey(i));
        assertEquals(Set.of(), differing, () -> differing.stream()
                .map(i -> documents.get(i)
                        + (repeated.containsKey(i) ? " = " + documents.get(repeated.get(i)) : " is unlike all before"))
                .collect(Collectors.joining("\n")));
        assertTrue(refused.size() > DOCUMENTS / 10 && first.size() > DOCUMENTS / 10);
    }

    private static Set<Integer> insert(List<RawBsonDocument> documents) {
        try (Server server = new Server()) {
            server.fresh("keys").insertMany(documents, new InsertManyOptions().ordered(false));
            return Set.of();
        } catch (MongoBulkWriteException error) {
            return error.getWriteErrors().stream()
                    .peek(each -> assertEquals(DUPLICATE_KEY, each.getCode(), each.getMessage()))
                    .map(each -> each.getIndex())
                    .collect(Collectors.toSet());
        }
    }
}
