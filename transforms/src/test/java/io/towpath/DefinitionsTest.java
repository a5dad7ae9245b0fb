package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.kafka.connect.MongoSinkConnector;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.MongoDbConnector;
import io.debezium.connector.mongodb.connection.MongoDbAuthProvider;
import io.towpath.sink.MongoSink;
import io.towpath.sink.RecordHandler;
import io.towpath.sink.TopicNamespaceMapper;
import io.towpath.source.MongoSource;
import io.towpath.source.RawDocuments;
import io.towpath.transform.DebeziumToRecord;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.transforms.Transformation;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The connectors' definitions, with every class of ours that they name made from them. */
class DefinitionsTest {
    private static final Path DEFINITIONS = Path.of("../connectors");
    /** What stands in the open places; anything else is x. */
    private static final Map<String, String> VALUES = Map.ofEntries(
            Map.entry("rename", "{}"),
            Map.entry("whole_documents", "false"),
            Map.entry("partitions", "1"),
            Map.entry("replication_factor", "1"),
            Map.entry("tasks", "1"),
            Map.entry("copy", "ranges"),
            Map.entry("copy_threads", "4"),
            Map.entry("read_preference", "secondaryPreferred"),
            Map.entry("documents_per_second", "0"),
            Map.entry("bytes_per_second", "5000000000"),
            Map.entry("write_concern", "majority+journal"),
            Map.entry("wtimeout_ms", "60000"),
            Map.entry("fold", "true"),
            Map.entry("batch_records", "50000"),
            Map.entry("poll_records", "4"),
            Map.entry("batch_bytes", "16777216"),
            Map.entry("until", ""),
            Map.entry("compaction_lag_ms", "-1"),
            Map.entry("delete_retention_ms", "-1"));

    @ParameterizedTest
    @ValueSource(strings = {"source.json", "plain-source.json"})
    void sourceConfiguresItsHook(String file) throws Exception {
        Map<String, String> source = definition(file);
        source.put("mongodb.connection.string", "mongodb://127.0.0.1:1"); // which Connect's config provider resolves
        MongoDbAuthProvider hook = made(source.get("mongodb.authentication.class"), MongoDbAuthProvider.class);
        hook.init(Configuration.from(source));
        assertInstanceOf(RawDocuments.class, hook);
    }

    @Test
    void plainSourceConfiguresItsTransform() throws Exception {
        Map<String, String> source = definition("plain-source.json");
        assertEquals(MongoDbConnector.class.getName(), source.get("connector.class"));
        Transformation<?> transform = made(source.get("transforms.record.type"), Transformation.class);
        Map<String, String> settings = new HashMap<>();
        source.forEach((key, value) -> {
            if (key.startsWith("transforms.record.")) settings.put(key.substring("transforms.record.".length()), value);
        });
        settings.remove("type");
        transform.configure(settings);
        assertInstanceOf(DebeziumToRecord.class, transform);
        assertEquals("record", source.get("transforms"));
    }

    @Test
    void sourceIsOursAndKnowsAllItsSettings() throws Exception {
        Map<String, String> source = definition("source.json");
        assertFalse(source.containsKey("transforms"));
        assertKnown(made(source.get("connector.class"), MongoSource.class), source, List.of());
    }

    @Test
    void sinkIsOursAndKnowsAllItsSettings() throws Exception {
        Map<String, String> sink = definition("sink.json");
        assertKnown(made(sink.get("connector.class"), MongoSink.class), sink, List.of(TopicNamespaceMapper.RENAME));
        assertEquals(
                MongoSinkConnector.class.getName(),
                definition("plain-sink.json").get("connector.class"));
    }

    /** Every setting of ours is one that the connector defines, and none has an error. */
    private static void assertKnown(Connector connector, Map<String, String> settings, List<String> elsewhere) {
        ConfigDef defined = connector.config();
        List<String> unknown = new ArrayList<>(settings.keySet().stream()
                .filter(key -> key.startsWith("towpath."))
                .toList());
        assertFalse(unknown.isEmpty());
        unknown.removeAll(defined.names());
        assertEquals(elsewhere, unknown);
        for (ConfigValue value : defined.validate(settings)) {
            if (value.name().startsWith("towpath.")) assertEquals(List.of(), value.errorMessages(), value.name());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"sink.json", "plain-sink.json"})
    void sinkConfiguresItsMapperAndItsHandler(String file) throws Exception {
        Map<String, String> sink = definition(file);
        sink.remove("topics.regex");
        sink.put("topics", "x.shop.orders");
        MongoSinkTopicConfig config = new MongoSinkTopicConfig("x.shop.orders", sink, true);
        assertInstanceOf(TopicNamespaceMapper.class, config.getNamespaceMapper());
        Class<?> handler = Class.forName(sink.get("change.data.capture.handler"));
        assertInstanceOf(
                RecordHandler.class,
                handler.getConstructor(MongoSinkTopicConfig.class).newInstance(config));
    }

    @Test
    void noDefinitionNamesAnotherClassOfOursOrHoldsASecret() throws IOException {
        try (Stream<Path> files = Files.list(DEFINITIONS)) {
            long found = files.filter(file -> file.toString().endsWith(".json"))
                    .map(file -> definition(file.getFileName().toString()))
                    .peek(definition -> definition.forEach((key, value) -> {
                        if (value.startsWith("io.towpath.")) assertTrue(exists(value), key);
                        assertEquals(
                                key.endsWith("connection.string") || key.endsWith("uri"),
                                value.startsWith("${file:"),
                                key);
                    }))
                    .count();
            assertEquals(4, found);
        }
    }

    private static boolean exists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException error) {
            return false;
        }
    }

    private static <T> T made(String name, Class<T> kind) throws ReflectiveOperationException {
        return kind.cast(Class.forName(name).getDeclaredConstructor().newInstance());
    }

    /** A definition with its open places filled in. */
    private static Map<String, String> definition(String file) {
        try {
            Map<String, String> settings = new HashMap<>();
            BsonDocument.parse(Files.readString(DEFINITIONS.resolve(file)))
                    .forEach((key, value) ->
                            settings.put(key, filled(value.asString().getValue())));
            return settings;
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String filled(String text) {
        String result = text;
        for (Map.Entry<String, String> value : VALUES.entrySet())
            result = result.replace("%%(%s)s".formatted(value.getKey()), value.getValue());
        return result.replaceAll("%\\(\\w+\\)s", "x");
    }
}
