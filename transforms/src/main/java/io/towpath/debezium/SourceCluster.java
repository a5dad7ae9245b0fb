package io.towpath.source;

import com.mongodb.ClientSessionOptions;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.ClientSession;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.CollectionId;
import io.debezium.connector.mongodb.Filters;
import io.debezium.connector.mongodb.connection.MongoDbConnectionContext;
import io.towpath.record.ClusterTime;
import io.towpath.record.TopicNames;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonRegularExpression;
import org.bson.BsonString;
import org.bson.RawBsonDocument;
import org.bson.codecs.configuration.CodecRegistries;
import org.bson.codecs.configuration.CodecRegistry;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What is asked of the source besides its change stream, over a connection made by Debezium's settings. */
final class SourceCluster implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SourceCluster.class);
    private static final Duration PAUSE = Duration.ofSeconds(1);
    /** Debezium has the server filter the change stream by these. */
    static final List<String> FILTERS = List.of(
            "collection.include.list", "collection.exclude.list", "database.include.list", "database.exclude.list");

    private static final int INVALID_EXPRESSION = 51091;
    private static final BsonDocument BY_ID = new BsonDocument("_id", new BsonInt32(1));
    /** Documents that the server sends at once, and 16 MB at most. */
    private static final int BATCH_DOCUMENTS = 4_000;
    /** About as many bytes all threads of a copy together have the server send at once. */
    private static final long BATCHES_BYTES = 64 << 20;

    private final MongoClient client;
    private final SourceSettings settings;
    private final CodecRegistry registry;

    SourceCluster(Map<String, String> configuration, SourceSettings settings) {
        this.client = new MongoDbConnectionContext(Configuration.from(configuration)).getMongoClient();
        this.settings = settings;
        this.registry = CodecRegistries.fromRegistries(
                CodecRegistries.fromCodecs(new DocumentBytesCodec()),
                com.mongodb.MongoClientSettings.getDefaultCodecRegistry());
    }

    /** Returns once a primary answers. Throws {@link ConnectException} when none does in time, and what does not pass by itself. */
    void awaitPrimary(Duration patience) {
        long end = System.nanoTime() + patience.toNanos();
        while (true) {
            try {
                now();
                return;
            } catch (MongoException error) {
                if (!ReadFault.passes(error)) throw error;
                if (System.nanoTime() > end)
                    throw new ConnectException(
                            "the source had no primary for %d s; restart the task once it has one: %s"
                                    .formatted(patience.toSeconds(), ReadFault.words(error)),
                            error);
                LOGGER.warn(
                        "the task waits for a primary of the source, which it starts with: {}", ReadFault.words(error));
                LockSupport.parkNanos(PAUSE.toNanos());
            }
        }
    }

    /** The cluster time of the last operation. */
    ClusterTime now() {
        BsonDocument answer = client.getDatabase("admin")
                .withCodecRegistry(registry)
                .runCommand(new BsonDocument("ping", new BsonInt32(1)), BsonDocument.class);
        return ClusterTime.of(answer.getTimestamp("operationTime"));
    }

    /** The collections there are that a selection takes in; views and system collections are none. */
    List<String> namespaces(Predicate<String> selection) {
        List<String> found = new ArrayList<>();
        for (String database : client.listDatabaseNames()) {
            for (BsonDocument collection :
                    client.getDatabase(database).withCodecRegistry(registry).listCollections(BsonDocument.class)) {
                String name = collection.getString("name").getValue();
                boolean stored = collection.getString("type").getValue().equals("collection");
                if (stored && !name.startsWith("system.") && selection.test(database + "." + name)) {
                    found.add(simple(database + "." + name, collection));
                    TopicNames.of(settings.name(), database + "." + name);
                }
            }
        }
        return found;
    }

    /** Throws {@link ConnectException} where {@code _id}s compare otherwise than by their bytes. */
    private static String simple(String namespace, BsonDocument collection) {
        BsonDocument options = collection.getDocument("options", new BsonDocument());
        String locale = options.getDocument("collation", new BsonDocument())
                .getString("locale", new BsonString("simple"))
                .getValue();
        if (locale.equals("simple")) return namespace;
        throw new ConnectException(
                "%s cannot be captured: its default collation (%s) holds _ids equal that differ; exclude it"
                        .formatted(namespace, locale));
    }

    /** Throws {@link ConnectException} for expressions that Java knows, and the server, which filters the stream by them, does not. */
    void refuseExpressions(Map<String, String> configuration) {
        if (configuration.getOrDefault("filters.match.mode", "regex").equals("literal")) return;
        for (String key : FILTERS) {
            String expressions = configuration.getOrDefault(key, "").replace(',', '|');
            if (!expressions.isEmpty()) refuseExpression(key, expressions);
        }
    }

    private void refuseExpression(String key, String expression) {
        BsonDocument name = new BsonDocument("name", new BsonRegularExpression(expression, "i"));
        try {
            client.listDatabases(BsonDocument.class).nameOnly(true).filter(name).first();
        } catch (MongoCommandException error) {
            if (error.getCode() != INVALID_EXPRESSION) throw error;
            throw new ConnectException(
                    "TWP-CONFIG: %s is '%s', and the source cannot filter its changes by that: %s"
                            .formatted(key, expression, error.getErrorMessage()),
                    error);
        }
    }

    /** What a connector with such settings takes in, as Debezium decides it. */
    static Predicate<String> selection(Map<String, String> configuration) {
        Predicate<CollectionId> filter = new Filters(Configuration.from(configuration)).collectionFilter();
        return namespace -> {
            MongoNamespace name = new MongoNamespace(namespace);
            return filter.test(new CollectionId(name.getDatabaseName(), name.getCollectionName()));
        };
    }

    MongoCollection<BsonDocument> collection(String namespace) {
        MongoNamespace name = new MongoNamespace(namespace);
        return client.getDatabase(name.getDatabaseName())
                .getCollection(name.getCollectionName(), BsonDocument.class)
                .withCodecRegistry(registry);
    }

    /** For how many hours the oplog is kept at least, whatever its size; 0 where that is not said, or the user may not know. */
    double oplogHoursKept() {
        try {
            BsonDocument status = client.getDatabase("admin")
                    .withCodecRegistry(registry)
                    .runCommand(new BsonDocument("serverStatus", new BsonInt32(1)), BsonDocument.class);
            return status.getDocument("oplogTruncation", new BsonDocument())
                    .getNumber("oplogMinRetentionHours", new BsonInt32(0))
                    .doubleValue();
        } catch (MongoCommandException refused) {
            return 0;
        }
    }

    MongoCollection<BsonDocument> oplog() {
        return collection("local.oplog.rs");
    }

    /** The change stream of the whole deployment. */
    ChangeStreamIterable<BsonDocument> changes(List<BsonDocument> stages) {
        return client.watch(stages, BsonDocument.class);
    }

    /** A session whose reads all see one moment: that of the first read. */
    ClientSession snapshot() {
        return client.startSession(ClientSessionOptions.builder().snapshot(true).build());
    }

    /** A session whose reads all see {@code moment}. */
    ClientSession snapshot(ClusterTime moment) {
        ClientSession session = snapshot();
        session.setSnapshotTimestamp(moment.timestamp());
        return session;
    }

    /**
     * The documents of a range, by their {@code _id}s whatever their types, as bytes.
     *
     * @param from key of the first {@code _id}; empty for the beginning
     * @param to key of the first {@code _id} that is not in it; empty for the end
     */
    FindIterable<byte[]> range(ClientSession session, String namespace, byte[] from, byte[] to) {
        FindIterable<byte[]> found = documents(namespace, session, new BsonDocument());
        if (from.length > 0) found.min(new RawBsonDocument(from));
        if (to.length > 0) found.max(new RawBsonDocument(to));
        return found;
    }

    /** How many documents of a collection one thread has the server send at once. */
    int batch(RangePlan plan) {
        return (int) Math.min(BATCH_DOCUMENTS, plan.documentsIn(BATCHES_BYTES / settings.threads()));
    }

    /** The documents of a namespace that a filter finds, in the order of their {@code _id}s, as bytes. */
    FindIterable<byte[]> documents(String namespace, ClientSession session, BsonDocument filter) {
        return collection(namespace)
                .withDocumentClass(byte[].class)
                .withReadPreference(settings.readPreference())
                .find(session, filter)
                .sort(BY_ID)
                .hint(BY_ID)
                .batchSize(BATCH_DOCUMENTS);
    }

    /** What is done to collections as such, by anyone in the deployment, from a moment on. */
    MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> ddl(ClusterTime from) {
        BsonArray kinds = new BsonArray(Ddl.KINDS.stream().map(BsonString::new).toList());
        BsonDocument which = new BsonDocument("operationType", new BsonDocument("$in", kinds));
        return client.watch(List.of(new BsonDocument("$match", which)), BsonDocument.class)
                .showExpandedEvents(true)
                .startAtOperationTime(from.timestamp())
                .maxAwaitTime(1, TimeUnit.SECONDS)
                .cursor();
    }

    @Override
    public void close() {
        client.close();
    }
}
