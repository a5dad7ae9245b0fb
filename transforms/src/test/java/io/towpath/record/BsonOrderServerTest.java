package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import io.towpath.support.Fuzz;
import io.towpath.support.Server;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The server is asked for its order: what the index on {@code _id} yields. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class BsonOrderServerTest {
    private static final int DOCUMENTS = 3000;
    private static final BsonDocument BY_ID = new BsonDocument("_id", new BsonInt32(1));

    static Stream<Long> seeds() {
        return LongStream.range(Fuzz.seed(), Fuzz.seed() + Fuzz.times(10)).boxed();
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void shuffledIdsSortAsTheIndexHasThem(long seed) {
        List<RawBsonDocument> indexed = stored(seed);
        List<RawBsonDocument> sorted = new ArrayList<>(indexed);
        Collections.shuffle(sorted, new Random(seed));

        sorted.sort((left, right) -> BsonOrder.compare(bytes(left), bytes(right)));

        for (int i = 0; i < sorted.size(); i++) assertEquals(indexed.get(i), sorted.get(i), "at place " + i);
        assertTrue(sorted.size() > DOCUMENTS / 4, "too few different _ids: " + sorted.size());
    }

    private static List<RawBsonDocument> stored(long seed) {
        RandomIds random = new RandomIds(seed);
        List<RawBsonDocument> documents = Stream.generate(() -> new RawBsonDocument(random.document()))
                .limit(DOCUMENTS)
                .toList();
        try (Server server = new Server()) {
            MongoCollection<RawBsonDocument> collection = server.fresh("order");
            Server.insert(collection, documents);
            return collection.find().sort(BY_ID).hint(BY_ID).into(new ArrayList<>());
        }
    }

    private static byte[] bytes(RawBsonDocument document) {
        byte[] bytes = new byte[document.getByteBuffer().remaining()];
        document.getByteBuffer().get(bytes);
        return bytes;
    }
}
