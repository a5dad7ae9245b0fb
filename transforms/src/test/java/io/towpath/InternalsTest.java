package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.support.ClassFiles;
import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

/** Classes of other products that may move or change with any version: each is used in one class of ours, which a list here names. */
class InternalsTest {
    /** The packages of Kafka's published Javadoc. */
    private static final Set<String> PUBLIC_KAFKA = Set.of(
            "org/apache/kafka/clients/admin",
            "org/apache/kafka/clients/consumer",
            "org/apache/kafka/clients/producer",
            "org/apache/kafka/common",
            "org/apache/kafka/common/config",
            "org/apache/kafka/common/errors",
            "org/apache/kafka/common/header",
            "org/apache/kafka/common/serialization",
            "org/apache/kafka/connect/connector",
            "org/apache/kafka/connect/data",
            "org/apache/kafka/connect/errors",
            "org/apache/kafka/connect/header",
            "org/apache/kafka/connect/sink",
            "org/apache/kafka/connect/source",
            "org/apache/kafka/connect/storage",
            "org/apache/kafka/connect/transforms");

    /** Class of Kafka → the only one of ours that uses it. */
    private static final Map<String, String> KAFKA = Map.of(
            "org/apache/kafka/common/compress/Compression", "io/towpath/source/RecordSizeLimit",
            "org/apache/kafka/common/config/types/Password", "io/towpath/source/SourceSettings",
            "org/apache/kafka/common/record/TimestampType", "io/towpath/sink/RecordCopy",
            "org/apache/kafka/common/security/ssl/DefaultSslEngineFactory", "io/towpath/net/PemFiles",
            "org/apache/kafka/common/utils/ByteBufferOutputStream", "io/towpath/source/RecordSizeLimit",
            "org/apache/kafka/common/utils/Utils", "io/towpath/connector/KeyPartitioner",
            "org/apache/kafka/connect/json/JsonConverter", "io/towpath/debezium/DebeziumToRecord");

    /** What mongo-kafka's documentation tells to extend, and the settings that those get. */
    private static final Set<String> PUBLIC_MONGO_KAFKA = Set.of(
            "com/mongodb/kafka/connect/MongoSinkConnector",
            "com/mongodb/kafka/connect/sink/MongoSinkConfig",
            "com/mongodb/kafka/connect/sink/MongoSinkTopicConfig",
            "com/mongodb/kafka/connect/sink/cdc/CdcHandler",
            "com/mongodb/kafka/connect/sink/converter/SinkDocument",
            "com/mongodb/kafka/connect/sink/namespace/mapping/NamespaceMapper",
            "com/mongodb/kafka/connect/util/custom/credentials/CustomCredentialProvider");

    private static final Map<String, String> MONGO_KAFKA = Map.of(
            "com/mongodb/kafka/connect/util/ConfigHelper", "io/towpath/sink/Destination",
            "com/mongodb/kafka/connect/util/ConnectionValidator", "io/towpath/sink/Destination",
            "com/mongodb/kafka/connect/util/ServerApiConfig", "io/towpath/sink/Destination",
            "com/mongodb/kafka/connect/util/SslConfigs", "io/towpath/sink/Destination");

    @Test
    void kafkaIsUsedByItsPublicClasses() throws IOException {
        assertEquals(
                new TreeMap<>(KAFKA),
                internals(used ->
                        used.startsWith("org/apache/kafka/") && !PUBLIC_KAFKA.contains(ClassFiles.packageOf(used))),
                advice("Kafka", "KAFKA"));
    }

    @Test
    void mongoKafkaIsUsedByWhatItTellsToExtend() throws IOException {
        assertEquals(
                new TreeMap<>(MONGO_KAFKA),
                internals(used -> used.startsWith("com/mongodb/kafka/") && !PUBLIC_MONGO_KAFKA.contains(used)),
                advice("mongo-kafka", "MONGO_KAFKA"));
    }

    @Test
    void theDriverIsUsedByItsPublicClasses() throws IOException {
        assertEquals(
                Map.of(),
                internals(used -> used.startsWith("com/mongodb/internal/")),
                "the driver's internal classes change with any version: use public ones");
    }

    /** Where a new version is compared with what we make of it. */
    @Test
    void debeziumIsUsedInOnePackageAndByTheConnector() throws IOException {
        Set<String> packages = new TreeSet<>();
        Set<String> byTheConnector = new TreeSet<>();
        ClassFiles.uses().forEach((name, uses) -> uses.stream()
                .filter(used -> used.startsWith("io/debezium/"))
                .forEach(used -> {
                    if (name.equals("io/towpath/source/MongoSource")) byTheConnector.add(used);
                    else packages.add(ClassFiles.packageOf(name));
                }));
        assertEquals(Set.of("io/towpath/debezium"), packages, "let it use Debezium through io.towpath.debezium");
        assertEquals(Set.of("io/debezium/connector/mongodb/MongoDbConnector"), byTheConnector);
    }

    private static String advice(String product, String list) {
        return "%s does not promise to keep these classes: use public ones; where there are none, use them in one class, and name both in %s"
                .formatted(product, list);
    }

    /** Class of another product → those of ours that use it. */
    private static Map<String, String> internals(Predicate<String> isInternal) throws IOException {
        Map<String, String> internals = new TreeMap<>();
        ClassFiles.uses().forEach((name, uses) -> uses.stream()
                .filter(isInternal)
                .forEach(used -> internals.merge(used, name, (one, other) -> one + ", " + other)));
        return internals;
    }
}
