package io.towpath.debezium;

import com.mongodb.ClientSessionOptions;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import com.mongodb.ReadPreference;
import com.mongodb.ServerAddress;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.CollectionId;
import io.debezium.connector.mongodb.Filters;
import io.debezium.connector.mongodb.connection.MongoDbConnectionContext;
import io.debezium.connector.mongodb.connection.client.DefaultMongoDbClientFactory;
import io.debezium.util.Strings;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import io.towpath.record.TopicNames;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonRegularExpression;
import org.bson.BsonString;
import org.bson.RawBsonDocument;
import org.bson.codecs.configuration.CodecRegistry;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The source deployment, over a connection that Debezium's settings define: its clock, collections, oplog and change streams. */
public final class SourceCluster implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SourceCluster.class);
    private static final Duration PAUSE = Duration.ofSeconds(1);
    private static final Duration MEMBER_PATIENCE = Duration.ofSeconds(5);
    /** Settings by which Debezium has the server filter the change stream. */
    public static final List<String> FILTERS = List.of(
            "collection.include.list", "collection.exclude.list", "database.include.list", "database.exclude.list");

    private static final int REPORTS_SCHEMA_CHANGES = 6;
    private static final String SIMPLE = "simple";
    private static final String BOOKKEEPING = "towpath.";
    /** Instead of the client's, which keeps documents as Debezium needs them. */
    private static final CodecRegistry REGISTRY = MongoClientSettings.getDefaultCodecRegistry();

    private final Map<String, String> configuration;
    private final MongoClient client;
    private final String topicPrefix;

    public SourceCluster(Map<String, String> configuration, String topicPrefix) {
        this(
                configuration,
                new MongoDbConnectionContext(Configuration.from(configuration)).getMongoClient(),
                topicPrefix);
    }

    /** @param client closed with this */
    public SourceCluster(Map<String, String> configuration, MongoClient client, String topicPrefix) {
        this.configuration = configuration;
        this.client = client;
        this.topicPrefix = topicPrefix;
    }

    /**
     * A connection to one member only, whatever its state. Waits for it for a few seconds, as its caller may choose another one.
     *
     * @param member host and port, as the replica set names it
     */
    public SourceCluster at(String member) {
        MongoClientSettings settings =
                new DefaultMongoDbClientFactory(Configuration.from(configuration)).getMongoClientSettings();
        ServerAddress address = new ServerAddress(member);
        MongoClientSettings single = MongoClientSettings.builder(settings)
                .applyToClusterSettings(
                        cluster -> cluster.serverSelector(description -> description.getServerDescriptions().stream()
                                        .filter(server -> server.getAddress().equals(address))
                                        .toList())
                                .serverSelectionTimeout(MEMBER_PATIENCE.toSeconds(), TimeUnit.SECONDS))
                .build();
        return new SourceCluster(configuration, MongoClients.create(single), topicPrefix);
    }

    /** Returns once a primary responds. Throws {@link ConnectException} when none does in time, and errors that are not transient. */
    public void awaitPrimary(Duration patience) {
        long end = System.nanoTime() + patience.toNanos();
        while (true) {
            try {
                now();
                return;
            } catch (MongoException error) {
                if (!ReadFault.isTransient(error)) throw error;
                if (System.nanoTime() > end)
                    throw new ConnectException(
                            "the source had no primary for %d s; restart the task once it has one: %s"
                                    .formatted(patience.toSeconds(), ReadFault.message(error)),
                            error);
                LOGGER.warn(
                        "the task waits for a primary of the source before it starts: {}", ReadFault.message(error));
                LockSupport.parkNanos(PAUSE.toNanos());
            }
        }
    }

    /** The cluster time of the last operation. */
    public ClusterTime now() {
        return ClusterTime.of(runOnAdmin("ping").getTimestamp("operationTime"));
    }

    /** As {@link #now}, and not earlier than {@code earliest}: a former primary may not know yet that it is one. */
    public ClusterTime now(ClusterTime earliest) {
        ClusterTime now = now();
        return now.isAfter(earliest) ? now : earliest;
    }

    private BsonDocument runOnAdmin(String command) {
        return client.getDatabase("admin")
                .withCodecRegistry(REGISTRY)
                .runCommand(new BsonDocument(command, new BsonInt32(1)), BsonDocument.class);
    }

    /**
     * As {@link #namespaces}, for a copy whose rows are compared with events by their {@code _id}s. Throws {@link ConnectException} where
     * these do not compare by their bytes.
     */
    public List<String> comparableNamespaces(Predicate<String> selection) {
        return namespaces(selection, SourceCluster::requireSimpleCollation);
    }

    /** The existing collections that a selection includes, without views and system collections. */
    public List<String> namespaces(Predicate<String> selection) {
        return namespaces(selection, (namespace, collection) -> {});
    }

    private List<String> namespaces(Predicate<String> selection, BiConsumer<String, BsonDocument> check) {
        List<String> namespaces = new ArrayList<>();
        for (String database : client.listDatabaseNames()) {
            for (BsonDocument collection :
                    client.getDatabase(database).withCodecRegistry(REGISTRY).listCollections(BsonDocument.class)) {
                String name = collection.getString("name").getValue();
                String namespace = database + "." + name;
                boolean isStored = collection.getString("type").getValue().equals("collection");
                if (!isStored || name.startsWith("system.") || !selection.test(namespace)) continue;
                check.accept(namespace, collection);
                TopicNames.of(topicPrefix, namespace);
                namespaces.add(namespace);
            }
        }
        return namespaces;
    }

    public List<String> databases() {
        return client.listDatabaseNames().into(new ArrayList<>());
    }

    /** The collections and views of a database, as {@code listCollections} describes them. */
    public List<BsonDocument> collections(String database, BsonDocument filter) {
        return client.getDatabase(database)
                .withCodecRegistry(REGISTRY)
                .listCollections(BsonDocument.class)
                .filter(filter)
                .into(new ArrayList<>());
    }

    /** Of a collection, as {@code listIndexes} describes them; none where it does not exist. */
    public List<BsonDocument> indexes(String namespace) {
        return collection(namespace).listIndexes(BsonDocument.class).into(new ArrayList<>());
    }

    /** Whether change streams report schema changes. */
    public boolean reportsSchemaChanges() {
        return majorVersion() >= REPORTS_SCHEMA_CHANGES;
    }

    /** Of the feature compatibility; of the server where the user may not ask. */
    private int majorVersion() {
        String name = "featureCompatibilityVersion";
        BsonDocument command = new BsonDocument("getParameter", new BsonInt32(1)).append(name, new BsonInt32(1));
        try {
            String version = client.getDatabase("admin")
                    .withCodecRegistry(REGISTRY)
                    .runCommand(command, BsonDocument.class)
                    .getDocument(name)
                    .getString("version")
                    .getValue();
            return Integer.parseInt(version.substring(0, version.indexOf('.')));
        } catch (MongoCommandException denied) {
            return runOnAdmin("buildInfo")
                    .getArray("versionArray")
                    .get(0)
                    .asInt32()
                    .getValue();
        }
    }

    /** Throws {@link ConnectException} where {@code _id}s do not compare by their bytes. */
    private static void requireSimpleCollation(String namespace, BsonDocument collection) {
        String locale = collation(collection);
        if (!locale.equals(SIMPLE))
            throw new ConnectException(
                    "TWP-COLLATION: %s cannot be captured: its default collation (%s) treats different _ids as equal; exclude it"
                            .formatted(namespace, locale));
    }

    /** The locale of a collection's default collation. */
    private static String collation(BsonDocument collection) {
        return collection
                .getDocument("options", new BsonDocument())
                .getDocument("collation", new BsonDocument())
                .getString("locale", new BsonString(SIMPLE))
                .getValue();
    }

    /** Whether the server orders the collection's {@code _id}s as their bytes are. */
    public boolean hasSimpleCollation(String namespace) {
        return described(namespace).stream()
                .allMatch(collection -> collation(collection).equals(SIMPLE));
    }

    /** Whether the name is that of a view, or of a time-series collection, which is read like one. */
    public boolean isView(String namespace) {
        return described(namespace).stream()
                .anyMatch(found -> !found.getString("type").getValue().equals("collection"));
    }

    /** The collection as {@code listCollections} describes it; empty if there is none of this name. */
    private List<BsonDocument> described(String namespace) {
        MongoNamespace name = new MongoNamespace(namespace);
        return collections(name.getDatabaseName(), new BsonDocument("name", new BsonString(name.getCollectionName())));
    }

    /** Throws {@link PatternSyntaxException} for a list of regular expressions that Debezium cannot read. */
    public static void requireExpressions(String list) {
        Strings.listOfRegex(list, Pattern.CASE_INSENSITIVE);
    }

    /** Throws {@link ConnectException} for expressions that are valid in Java but not at the server, which filters the stream by them. */
    public void requireFilters(Map<String, String> configuration) {
        if (configuration.getOrDefault("filters.match.mode", "regex").equals("literal")) return;
        for (String key : FILTERS) {
            String expressions = configuration.getOrDefault(key, "").replace(',', '|');
            if (!expressions.isEmpty()) requireFilter(key, expressions);
        }
    }

    private void requireFilter(String key, String expression) {
        BsonDocument name = new BsonDocument("name", new BsonRegularExpression(expression, "i"));
        try {
            client.listDatabases(BsonDocument.class).nameOnly(true).filter(name).first();
        } catch (MongoCommandException error) {
            if (!ServerError.InvalidRegularExpression.is(error)) throw error;
            throw new ConnectException(
                    "TWP-CONFIG: %s is '%s', and the source cannot filter its changes by that: %s"
                            .formatted(key, expression, error.getErrorMessage()),
                    error);
        }
    }

    /** Whether a namespace belongs to Towpath: what a sink keeps at its destination, which may be the source of another pipeline. */
    public static boolean isBookkeeping(String namespace) {
        return namespace.startsWith(BOOKKEEPING);
    }

    /** What a connector with these settings captures: as Debezium decides it, and never Towpath's bookkeeping. */
    public static Predicate<String> selection(Map<String, String> configuration) {
        Predicate<CollectionId> filter = new Filters(Configuration.from(configuration)).collectionFilter();
        return namespace -> {
            MongoNamespace name = new MongoNamespace(namespace);
            return !isBookkeeping(namespace)
                    && filter.test(new CollectionId(name.getDatabaseName(), name.getCollectionName()));
        };
    }

    /** Reads documents as {@link BsonDocument} or as {@link RawBsonDocument}. */
    public MongoCollection<BsonDocument> collection(String namespace) {
        MongoNamespace name = new MongoNamespace(namespace);
        return client.getDatabase(name.getDatabaseName())
                .getCollection(name.getCollectionName(), BsonDocument.class)
                .withCodecRegistry(REGISTRY);
    }

    MongoCollection<BsonDocument> oplog() {
        return collection("local.oplog.rs");
    }

    /** How many hours the oplog keeps entries at least, whatever its size; 0 where that is not set, or the user may not read it. */
    double oplogRetentionHours() {
        try {
            return runOnAdmin("serverStatus")
                    .getDocument("oplogTruncation", new BsonDocument())
                    .getNumber("oplogMinRetentionHours", new BsonInt32(0))
                    .doubleValue();
        } catch (MongoCommandException denied) {
            return 0;
        }
    }

    /** For how many seconds the server keeps its past states; the server's default where the user may not ask. */
    public int snapshotWindowSeconds() {
        String name = "minSnapshotHistoryWindowInSeconds";
        BsonDocument command = new BsonDocument("getParameter", new BsonInt32(1)).append(name, new BsonInt32(1));
        try {
            return client.getDatabase("admin")
                    .withCodecRegistry(REGISTRY)
                    .runCommand(command, BsonDocument.class)
                    .getNumber(name)
                    .intValue();
        } catch (MongoCommandException denied) {
            return 300;
        }
    }

    /** The size of WiredTiger's cache; empty where the user may not ask. */
    public OptionalLong cacheBytes() {
        BsonDocument command = new BsonDocument("serverStatus", new BsonInt32(1));
        try {
            return OptionalLong.of(client.getDatabase("admin")
                    .withCodecRegistry(REGISTRY)
                    .runCommand(command, ReadPreference.nearest(), BsonDocument.class)
                    .getDocument("wiredTiger")
                    .getDocument("cache")
                    .getNumber("maximum bytes configured")
                    .longValue());
        } catch (MongoCommandException denied) {
            return OptionalLong.empty();
        }
    }

    /** A session without its own cluster time: its commands name theirs. */
    public ClientSession session() {
        return client.startSession(
                ClientSessionOptions.builder().causallyConsistent(false).build());
    }

    /** Runs a command that the driver has no method for, on any member. Throws the driver's exceptions. */
    public RawBsonDocument run(String database, BsonDocument command, ClientSession session) {
        return client.getDatabase(database)
                .withCodecRegistry(REGISTRY)
                .runCommand(session, command, ReadPreference.nearest(), RawBsonDocument.class);
    }

    /** The change stream of the whole deployment. */
    public ChangeStreamIterable<BsonDocument> changes(List<BsonDocument> stages) {
        return client.watch(stages, BsonDocument.class);
    }

    /** A session whose reads all see one cluster time: that of the first read. */
    public ClientSession snapshot() {
        return client.startSession(ClientSessionOptions.builder().snapshot(true).build());
    }

    /** A session whose reads all see {@code time}. */
    public ClientSession snapshot(ClusterTime time) {
        ClientSession session = snapshot();
        session.setSnapshotTimestamp(time.timestamp());
        return session;
    }

    @Override
    public void close() {
        client.close();
    }
}
