package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.debezium.connector.mongodb.Module;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What {@link DebeziumTask} repeats, replaces and puts together is what it was when someone last compared the two. */
class DebeziumContractTest {
    /** When the digests here were written. */
    private static final String VERSION = "3.6.1.Final";

    /** The whole classes, of which a method is repeated or replaced. */
    @ParameterizedTest
    @CsvSource({
        "io.debezium.connector.mongodb.MongoDbConnectorTask, DebeziumTask.started, ff78d38ac50c",
        "io.debezium.connector.mongodb.MongoDbSchema, DebeziumTask.Schemas, 269a220e344d",
        "io.debezium.connector.mongodb.MongoDbCollectionSchema, DebeziumTask.Schemas, aed43aaabd65",
        "io.debezium.connector.mongodb.MongoDbEventMetadataProvider, DebeziumTask.Metadata, 8177f7751e01",
        "io.debezium.schema.DefaultTopicNamingStrategy, DebeziumTask.Topics, ef31002c7532",
        "io.debezium.connector.mongodb.MongoDbChangeEventSourceFactory, DebeziumTask.sources, 7ebd0c872386",
        "io.debezium.connector.mongodb.MongoDbStreamingChangeEventSource, DebeziumTask.sources and BoundedCursor, a716a4809ed8",
        "io.debezium.connector.mongodb.connection.DefaultMongoDbAuthProvider, RawDocuments, e537b97bfe77"
    })
    void theClassIsAsItWas(String name, String ours, String digest) throws Exception {
        byte[] file;
        try (InputStream in = Class.forName(name).getResourceAsStream("/" + name.replace('.', '/') + ".class")) {
            file = in.readAllBytes();
        }
        assertEquals(digest, digest(file), () -> changed(name, ours));
    }

    /** The constructors of what is put together: a parameter more is one more part to decide about. */
    @ParameterizedTest
    @CsvSource({
        "io.debezium.connector.mongodb.MongoDbTaskContext, 84a4eec8b989",
        "io.debezium.connector.mongodb.MongoDbErrorHandler, 79cf781fede1",
        "io.debezium.connector.mongodb.MongoDbPartition$Provider, bcee429323d3",
        "io.debezium.connector.mongodb.MongoDbOffsetContext$Loader, 18466b148f4e",
        "io.debezium.connector.mongodb.metrics.MongoDbChangeEventSourceMetricsFactory, 97d6ae45de7e",
        "io.debezium.pipeline.EventDispatcher, fdc4937de29f",
        "io.debezium.pipeline.ChangeEventSourceCoordinator, fbddc4e09f3f",
        "io.debezium.pipeline.signal.SignalProcessor, 5b2157c99416",
        "io.debezium.pipeline.notification.NotificationService, e2beacee440b",
        "io.debezium.schema.AbstractTopicNamingStrategy, 7bb628bc059e"
    })
    void theConstructorsAreAsTheyWere(String name, String digest) throws Exception {
        String signatures = Arrays.stream(Class.forName(name).getDeclaredConstructors())
                .map(Constructor::toGenericString)
                .sorted()
                .collect(Collectors.joining("\n"));
        assertEquals(digest, digest(signatures.getBytes()), () -> changed(name, "DebeziumTask") + signatures);
    }

    private static String changed(String name, String ours) {
        return "Debezium's %s has changed since %s (this is %s): compare it with %s, then write the new digest here. "
                .formatted(name, VERSION, Module.version(), ours);
    }

    private static String digest(byte[] bytes) throws NoSuchAlgorithmException {
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(bytes);
        return HexFormat.of().formatHex(sum, 0, 6);
    }
}
