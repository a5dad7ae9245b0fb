package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.WriteConcern;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.record.ContractException;
import io.towpath.record.SchemaChange;
import io.towpath.sink.ddl.SchemaChanges;
import io.towpath.support.Definitions;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The sink's settings, and the connector that hands them to its tasks. */
class SinkSettingsTest {
    @Test
    void writeConcernsAreMembersAMajorityOrATag() {
        assertEquals(inAMinute(new WriteConcern(1)), concern("1"));
        assertEquals(inAMinute(WriteConcern.MAJORITY), concern("majority"));
        assertEquals(inAMinute(WriteConcern.MAJORITY.withJournal(true)), concern("majority+journal"));
        assertEquals(inAMinute(new WriteConcern("elsewhere")), concern("elsewhere"));
    }

    @ParameterizedTest
    @CsvSource({"true, true, true", "false, false, false", "'shop\\.shop\\.(a|b)', true, false"})
    void aRebuildOfSomeTopicsMakesOnlyTheirSchemaChangesAnew(String setting, boolean ofA, boolean ofC) {
        SchemaChanges.Settings schema =
                SinkSettings.of(settings(SinkSettings.DDL_REPLAY, setting)).schema();
        assertEquals(ofA, schema.replays(drop("shop.a")));
        assertEquals(ofC, schema.replays(drop("shop.c")));
    }

    @ParameterizedTest
    @CsvSource({"topics, ' main.a, main.b,main.a'", "topics.regex, main\\.[ab]"})
    void theTopicsAreThoseThatConnectReads(String name, String topics) {
        Predicate<String> reads =
                SinkSettings.of(settings(name, topics)).schema().topics();
        assertEquals(
                List.of("main.a", "main.b"),
                Stream.of("main.a", "main.b", "main.c", "main.ab", "")
                        .filter(reads)
                        .toList());
    }

    @Test
    void recordsOfChangesAfterTheLastTimeAreSkipped() {
        LogSettings log =
                SinkSettings.of(settings("towpath.until", "1700000000:5")).log();
        assertEquals(
                List.of(false, false, true, true),
                Stream.of("1699999999:9", "1700000000:5", "1700000000:6", "1700000001:0")
                        .map(time -> log.skips(record("1 u %s 5".formatted(time))))
                        .toList());
        assertThrows(DataException.class, () -> log.skips(record("1 u")));
        assertThrows(ContractException.class, () -> log.skips(record("1 u soon 5")));
        assertFalse(SinkSettings.of(settings("towpath.fold", "true")).log().skips(record("1 u")));
    }

    private static SinkRecord record(String header) {
        ConnectHeaders headers = new ConnectHeaders();
        headers.addBytes("v", header.getBytes(UTF_8));
        return new SinkRecord("t", 0, null, null, null, null, 0, null, TimestampType.NO_TIMESTAMP_TYPE, headers);
    }

    @Test
    void noSchemaChangeIsMadeFromTheEndOfItsPartitionOn() {
        LogSettings log = SinkSettings.of(settings("towpath.ddl.ends", "{\"t\": [70, 95]}"))
                .log();
        TopicPartition first = new TopicPartition("t", 0);
        assertFalse(log.endsBefore(first, 69));
        assertTrue(log.endsBefore(first, 70));
        assertFalse(log.endsBefore(new TopicPartition("t", 1), 94));
        assertTrue(log.endsBefore(new TopicPartition("t", 2), 0), "a partition that was added since");
        assertTrue(log.endsBefore(new TopicPartition("other", 0), 0));
        assertFalse(SinkSettings.of(settings("towpath.fold", "true")).log().endsBefore(first, 1_000));
    }

    private static SchemaChange drop(String namespace) {
        return new SchemaChange(
                "1:1/0/" + namespace,
                SchemaChange.Kind.DROP,
                namespace,
                "",
                false,
                new BsonDocument(),
                List.of(),
                false,
                Map.of("shop." + namespace, 1));
    }

    @ParameterizedTest
    @CsvSource({
        "towpath.batch.bytes, 0",
        "towpath.batch.records, 0",
        "towpath.fold, perhaps",
        "towpath.refused.percent, 101",
        "towpath.wtimeout.ms, -1",
        "towpath.write.concern, ''",
        "towpath.until, yesterday",
        "towpath.until, 1700000000",
        "towpath.until, 1700000000:-1",
        "towpath.until, 5000000000:1",
        "towpath.ddl.ends, '{\"shop.shop.orders\": 5}'",
        "towpath.compaction.lag.ms, -2",
        "towpath.delete.retention.ms, -2",
        "towpath.pipeline, ''",
        "towpath.ddl.replay, shop(",
        "towpath.rename, '{\"shop.orders\": 1}'",
        "towpath.rename, '{\"shop\": \"a.b\"}'",
        "consumer.override.max.poll.records, 0"
    })
    void whatMakesNoSenseIsRefused(String name, String value) {
        ConfigException refused = assertThrows(ConfigException.class, () -> SinkSettings.of(settings(name, value)));
        assertTrue(refused.getMessage().contains(name), refused::getMessage);
        assertTrue(new MongoSink()
                .config().validateAll(settings(name, value)).get(name).errorMessages().stream()
                        .findFirst()
                        .isPresent());
    }

    @Test
    void aCompactedLogIsDescribedAsAWhole() {
        Map<String, String> settings = settings("towpath.compaction.lag.ms", "5");
        assertRefused(settings, "go together");
        settings.put("towpath.delete.retention.ms", "7");
        assertRefused(settings, "towpath.log.bootstrap.servers");
        settings.put("towpath.log.bootstrap.servers", "inside:9092");
        settings.put("consumer.override.security.protocol", "SSL");
        LogSettings log = SinkSettings.of(settings).log();
        assertTrue(log.isCompacted());
        assertEquals(12, log.deletesKeptMs());
        assertEquals(Map.of("bootstrap.servers", "inside:9092", "security.protocol", "SSL"), log.consumer());
        assertFalse(
                SinkSettings.of(settings("topics", "main.shop.orders")).log().isCompacted());
        settings.put("towpath.compaction.lag.ms", "0");
        assertTrue(SinkSettings.of(settings).log().isCompacted());
        settings.put("towpath.delete.retention.ms", "-1");
        assertRefused(settings, "go together");
        settings.put("towpath.compaction.lag.ms", "-1");
        settings.put("towpath.delete.retention.ms", "0");
        assertRefused(settings, "go together");
    }

    private static void assertRefused(Map<String, String> settings, String words) {
        ConfigException refused = assertThrows(ConfigException.class, () -> SinkSettings.of(settings));
        assertTrue(refused.getMessage().contains(words), refused::getMessage);
    }

    @Test
    void theConnectorChecksMongoKafkasSettingsToo() {
        Map<String, String> settings = settings("connection.uri", "nowhere");
        assertEquals(
                1,
                new MongoSink()
                        .config()
                        .validateAll(settings)
                        .get("connection.uri")
                        .errorMessages()
                        .size());
        assertTrue(new MongoSink().config().names().containsAll(MongoSinkConfig.CONFIG.names()));
    }

    @Test
    void aBatchIsLargeAndFoldedUnlessTheSettingsSayOtherwise() {
        SinkSettings settings = SinkSettings.of(settings("topics", "main.shop.orders"));
        assertEquals(50_000, settings.batchRecords());
        assertEquals(16 << 20, settings.batchBytes());
        assertTrue(settings.fold());
        assertEquals(500, settings.pollRecords(), "Kafka's default");
        assertEquals(
                4, SinkSettings.of(settings(SinkSettings.POLL_RECORDS, "4")).pollRecords());
        assertFalse(SinkSettings.of(settings("towpath.fold", "false")).fold());
    }

    @Test
    void aPutEndsLongBeforeKafkaWouldTakeThePartitionsAway() {
        assertEquals(
                Duration.ofMinutes(1),
                SinkSettings.of(settings("topics", "main.shop.orders")).putTime());
        assertEquals(
                Duration.ofMinutes(2),
                SinkSettings.of(settings(SinkSettings.POLL_INTERVAL, "600000")).putTime());
    }

    @Test
    void tasksAreNumbered() {
        MongoSink connector = new MongoSink();
        connector.start(settings("towpath.batch.records", "7"));
        List<SinkSettings> tasks =
                connector.taskConfigs(3).stream().map(SinkSettings::of).toList();
        assertEquals(List.of(0, 1, 2), tasks.stream().map(SinkSettings::task).toList());
        assertEquals(7, tasks.get(2).batchRecords());
        assertEquals(TowpathSinkTask.class, connector.taskClass());
    }

    @ParameterizedTest
    @CsvSource({
        "key.converter, , ByteArrayConverter",
        "value.converter, org.apache.kafka.connect.storage.StringConverter, ByteArrayConverter",
        "header.converter, , ByteArrayConverter",
        "consumer.override.isolation.level, , set it to read_committed",
        "consumer.override.isolation.level, read_uncommitted, set it to read_committed",
        "consumer.override.auto.offset.reset, , set it to earliest",
        "consumer.override.auto.offset.reset, latest, set it to earliest",
        "towpath.compaction.lag.ms, 5, go together"
    })
    void whatSkipsOrRepeatsRecordsIsRefused(String key, String value, String words) {
        Map<String, String> settings = Definitions.filled("sink.json");
        settings.put("connection.uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1");
        if (value == null) settings.remove(key);
        else settings.put(key, value);
        assertRefusedWith(settings, key, words);
        assertEquals(List.of(), messages(settings, "connection.uri"), "it is not connected to");
    }

    @Test
    void theDestinationIsAskedOnceAllElseIsRight() {
        Map<String, String> settings = Definitions.filled("sink.json");
        settings.put("connection.uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1&connectTimeoutMS=100");
        assertEquals(1, messages(settings, "connection.uri").size());
        settings.put("towpath.batch.records", "0");
        assertEquals(List.of(), messages(settings, "connection.uri"));
    }

    @Test
    void aRenameThatIsNoneIsRefusedThoughTheMapperIsThere() {
        Map<String, String> settings = Definitions.filled("sink.json");
        settings.put("towpath.rename", "{\"shop.orders\": 1}");
        List<ConfigValue> values = new MongoSink().validate(settings).configValues();
        assertTrue(values.stream()
                .anyMatch(setting -> setting.name().equals("towpath.rename")
                        && !setting.errorMessages().isEmpty()));
        List<String> names = values.stream().map(ConfigValue::name).toList();
        assertTrue(names.containsAll(new MongoSink().config().names()), "Connect wants to see each of them");
    }

    private static void assertRefusedWith(Map<String, String> settings, String key, String words) {
        List<String> messages = messages(settings, key);
        assertEquals(1, messages.size(), messages::toString);
        assertTrue(messages.get(0).startsWith("TWP-CONFIG: "), messages::toString);
        assertTrue(messages.get(0).contains(words), messages::toString);
    }

    private static List<String> messages(Map<String, String> settings, String key) {
        return new MongoSink()
                .validate(settings).configValues().stream()
                        .filter(setting -> setting.name().equals(key))
                        .flatMap(setting -> setting.errorMessages().stream())
                        .toList();
    }

    private static WriteConcern concern(String text) {
        return SinkSettings.of(settings("towpath.write.concern", text)).writeConcern();
    }

    private static WriteConcern inAMinute(WriteConcern concern) {
        return concern.withWTimeout(1, TimeUnit.MINUTES);
    }

    private static Map<String, String> settings(String name, String value) {
        Map<String, String> settings = new HashMap<>();
        settings.put("connection.uri", "mongodb://127.0.0.1:1");
        settings.put("topics", "main.shop.orders");
        settings.put("towpath.pipeline", "main");
        settings.put(name, value);
        return settings;
    }
}
