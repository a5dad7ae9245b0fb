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
import io.towpath.connector.PluginVersion;
import io.towpath.debezium.DebeziumToRecord;
import io.towpath.debezium.RawDocuments;
import io.towpath.json.ToJson;
import io.towpath.sink.MongoSink;
import io.towpath.sink.TowpathSinkTask;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import io.towpath.source.MongoSource;
import io.towpath.source.TowpathSourceTask;
import io.towpath.support.Definitions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The connectors' definitions, with every class of ours that they name made from them. */
class DefinitionsTest {
    @ParameterizedTest
    @ValueSource(strings = {"source.json", "plain-source.json"})
    void sourceConfiguresItsHook(String file) throws Exception {
        Map<String, String> source = Definitions.filled(file);
        source.put("mongodb.connection.string", "mongodb://127.0.0.1:1"); // which Connect's config provider resolves
        MongoDbAuthProvider hook = instance(source.get("mongodb.authentication.class"), MongoDbAuthProvider.class);
        hook.init(Configuration.from(source));
        assertInstanceOf(RawDocuments.class, hook);
    }

    @Test
    void plainSourceConfiguresItsTransform() throws Exception {
        Map<String, String> source = Definitions.filled("plain-source.json");
        assertEquals(MongoDbConnector.class.getName(), source.get("connector.class"));
        Transformation<?> transform = instance(source.get("transforms.record.type"), Transformation.class);
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
        Map<String, String> source = Definitions.filled("source.json");
        assertFalse(source.containsKey("transforms"));
        assertKnown(instance(source.get("connector.class"), MongoSource.class), source);
    }

    @Test
    void sinkIsOursAndKnowsAllItsSettings() throws Exception {
        Map<String, String> sink = Definitions.filled("sink.json");
        assertKnown(instance(sink.get("connector.class"), MongoSink.class), sink);
        assertEquals(
                MongoSinkConnector.class.getName(),
                Definitions.filled("plain-sink.json").get("connector.class"));
    }

    /** Every setting of ours is one that the connector defines, and none has an error. */
    private static void assertKnown(Connector connector, Map<String, String> settings) {
        ConfigDef defined = connector.config();
        List<String> unknown = new ArrayList<>(settings.keySet().stream()
                .filter(key -> key.startsWith("towpath."))
                .toList());
        assertFalse(unknown.isEmpty());
        unknown.removeAll(defined.names());
        assertEquals(List.of(), unknown);
        for (ConfigValue value : defined.validate(settings)) {
            if (value.name().startsWith("towpath.")) assertEquals(List.of(), value.errorMessages(), value.name());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"sink.json", "plain-sink.json"})
    void sinkConfiguresItsMapperAndItsHandler(String file) throws Exception {
        Map<String, String> sink = Definitions.filled(file);
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
        try (Stream<Path> files = Files.list(Definitions.FOLDER)) {
            long definitions = files.filter(file -> file.toString().endsWith(".json"))
                    .map(file -> Definitions.filled(file.getFileName().toString()))
                    .peek(definition -> definition.forEach((key, value) -> {
                        if (value.startsWith("io.towpath.")) assertTrue(exists(value), key);
                        assertEquals(
                                key.endsWith("connection.string") || key.endsWith("uri"),
                                value.startsWith("${file:"),
                                key);
                    }))
                    .count();
            assertEquals(4, definitions);
        }
    }

    /** Not Debezium's or mongo-kafka's, which the connectors extend. */
    @Test
    void connectHearsTowpathsVersion() {
        for (String version : List.of(
                new MongoSource().version(),
                new TowpathSourceTask().version(),
                new MongoSink().version(),
                new TowpathSinkTask().version(),
                new DebeziumToRecord().version(),
                new ToJson<SinkRecord>().version())) assertEquals(PluginVersion.current(), version);
    }

    @Test
    @SuppressWarnings("rawtypes")
    void connectFindsTheTransforms() {
        List<String> ours = ServiceLoader.load(Transformation.class).stream()
                .map(provider -> provider.type().getName())
                .filter(name -> name.startsWith("io.towpath."))
                .toList();
        assertEquals(List.of(DebeziumToRecord.class.getName(), ToJson.class.getName()), ours);
    }

    private static boolean exists(String name) {
        try {
            Class.forName(name);
            return true;
        } catch (ClassNotFoundException error) {
            return false;
        }
    }

    private static <T> T instance(String name, Class<T> kind) throws ReflectiveOperationException {
        return kind.cast(Class.forName(name).getDeclaredConstructor().newInstance());
    }
}
