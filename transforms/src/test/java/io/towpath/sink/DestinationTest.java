package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.client.MongoCollection;
import io.towpath.record.BsonBytes;
import io.towpath.support.Server;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;

/** What tests of the sink on a real replica set share: an empty collection for each, and no notes of tasks before. */
@Tag("server")
abstract class DestinationTest {
    static Server server;
    MongoCollection<RawBsonDocument> collection;

    @BeforeAll
    static void connect() {
        Assumptions.assumeTrue(Server.uri() != null, Server.URI + " names no server");
        server = new Server();
    }

    @AfterAll
    static void close() {
        if (server != null) server.close();
    }

    @BeforeEach
    void fresh() {
        collection = server.fresh("sink");
        server.dropDatabase(Destination.DATABASE);
    }

    /** The collection holds what the source holds, byte for byte. */
    final void assertHolds(MongoCollection<RawBsonDocument> source) {
        List<BsonDocument> expected = TestTask.stored(source);
        List<BsonDocument> actual = TestTask.stored(collection);
        assertEquals(expected.size(), actual.size());
        for (int i = 0; i < expected.size(); i++) {
            BsonDocument at = expected.get(i);
            BsonDocument other = actual.get(i);
            assertArrayEquals(BsonBytes.of(at), BsonBytes.of(other), () -> "wanted %s%nfound %s".formatted(at, other));
        }
    }
}
