package io.towpath.support;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.ReadPreference;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.InsertManyOptions;
import io.towpath.net.ServerError;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Assumptions;

/**
 * The MongoDB server that some tests compare with, named by the environment variable {@value #URI}: one URI, or with a
 * space between them one for each JVM that runs tests.
 */
public final class Server implements AutoCloseable {
    public static final String URI = "TOWPATH_TEST_MONGODB_URI";

    private final MongoClient client = MongoClients.create(uri());
    private final String database = "transforms_" + ProcessHandle.current().pid();

    /** That of this JVM; null where the environment names no server. */
    public static String uri() {
        String uris = System.getenv(URI);
        return uris == null ? null : uris.split(" ")[Integer.getInteger("towpath.fork", 1) - 1];
    }

    public MongoCollection<RawBsonDocument> fresh(String name) {
        MongoCollection<RawBsonDocument> collection =
                client.getDatabase(database).getCollection(name, RawBsonDocument.class);
        collection.drop();
        return collection;
    }

    /** Inserts documents, the first of those with the same _id. */
    public static void insert(MongoCollection<RawBsonDocument> collection, List<RawBsonDocument> documents) {
        try {
            collection.insertMany(documents, new InsertManyOptions().ordered(false));
        } catch (MongoBulkWriteException error) {
            error.getWriteErrors()
                    .forEach(each -> assertEquals(ServerError.DuplicateKey.code(), each.getCode(), each.getMessage()));
        }
    }

    public void dropDatabase(String name) {
        client.getDatabase(name).drop();
    }

    public void onAdmin(String command) {
        client.getDatabase("admin").runCommand(BsonDocument.parse(command));
    }

    /** Run commands on the tests' database; the ones given last first. */
    public void run(String... commands) {
        for (int i = commands.length - 1; i >= 0; i--)
            client.getDatabase(database).runCommand(BsonDocument.parse(commands[i]));
    }

    public long documentsInserted() {
        return client.getDatabase("admin")
                .runCommand(BsonDocument.parse("{serverStatus: 1}"), BsonDocument.class)
                .getDocument("opcounters")
                .getNumber("insert")
                .longValue();
    }

    public MongoCollection<BsonDocument> offsets() {
        return client.getDatabase("towpath").getCollection("offsets", BsonDocument.class);
    }

    public MongoCollection<BsonDocument> tasks() {
        return client.getDatabase("towpath").getCollection("tasks", BsonDocument.class);
    }

    public MongoClient client() {
        return client;
    }

    public ClientSession session() {
        return client.startSession();
    }

    /** Have commands fail, as {@code failCommand} of a mongod for tests does. */
    public void fail(String mode, String how) {
        BsonDocument command = BsonDocument.parse("{configureFailPoint: 'failCommand', data: {%s}}".formatted(how));
        command.put("mode", mode.startsWith("{") ? BsonDocument.parse(mode) : new BsonString(mode));
        client.getDatabase("admin").runCommand(command);
    }

    /** Have the primary be none for a second. */
    public void stepDown() {
        BsonDocument command = BsonDocument.parse("{replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true}");
        client.getDatabase("admin").runCommand(command);
        client.getDatabase("admin").runCommand(BsonDocument.parse("{ping: 1}"), ReadPreference.primary());
    }

    /** Skips the test when the server is not one for tests. */
    public void requireTestCommands() {
        BsonDocument command = BsonDocument.parse("{getParameter: 1, enableTestCommands: 1}");
        BsonValue enabled = client.getDatabase("admin")
                .runCommand(command, BsonDocument.class)
                .get("enableTestCommands");
        Assumptions.assumeTrue(
                enabled != null && enabled.asBoolean().getValue(),
                "start mongod with --setParameter enableTestCommands=1");
    }

    @Override
    public void close() {
        client.getDatabase(database).drop();
        client.close();
    }
}
