package io.towpath.support;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import org.bson.RawBsonDocument;

/** The MongoDB server that some tests compare with, named by the environment variable {@value #URI}. */
public final class Server implements AutoCloseable {
    public static final String URI = "TOWPATH_TEST_MONGODB_URI";

    private final MongoClient client = MongoClients.create(System.getenv(URI));
    private final String database = "transforms_" + ProcessHandle.current().pid();

    public MongoCollection<RawBsonDocument> fresh(String name) {
        MongoCollection<RawBsonDocument> collection =
                client.getDatabase(database).getCollection(name, RawBsonDocument.class);
        collection.drop();
        return collection;
    }

    public void dropDatabase(String name) {
        client.getDatabase(name).drop();
    }

    @Override
    public void close() {
        client.getDatabase(database).drop();
        client.close();
    }
}
