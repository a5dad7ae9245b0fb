package io.towpath.sink;

import com.mongodb.client.MongoCollection;
import io.towpath.support.Server;
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
        Assumptions.assumeTrue(System.getenv(Server.URI) != null, Server.URI + " names no server");
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
}
