package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.connection.MongoDbAuthProvider;
import io.towpath.sink.RecordHandler;
import io.towpath.sink.TopicNamespaceMapper;
import io.towpath.source.RawDocuments;
import io.towpath.transform.DebeziumToRecord;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.transforms.Transformation;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

/** The connectors' definitions, with every class of ours that they name made from them. */
class DefinitionsTest {
    private static final Path DEFINITIONS = Path.of("../connectors");

    @Test
    void sourceConfiguresItsHookAndItsTransform() throws Exception {
        Map<String, String> source = definition("source.json");

        source.put("mongodb.connection.string", "mongodb://127.0.0.1:1"); // which Connect's config provider resolves
        MongoDbAuthProvider hook = made(source.get("mongodb.authentication.class"), MongoDbAuthProvider.class);
        hook.init(Configuration.from(source));
        assertInstanceOf(RawDocuments.class, hook);

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
    void sinkConfiguresItsMapperAndItsHandler() throws Exception {
        Map<String, String> sink = definition("sink.json");
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
            assertEquals(2, found);
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
                    .forEach((key, value) -> settings.put(
                            key,
                            value.asString()
                                    .getValue()
                                    .replace("%(rename)s", "{}")
                                    .replace("%(whole_documents)s", "false")
                                    .replaceAll("%\\((partitions|replication_factor|tasks)\\)s", "1")
                                    .replaceAll("%\\(\\w+\\)s", "x")));
            return settings;
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
