package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Definitions;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the source refuses before it does anything. */
class SourceSettingsTest {
    @ParameterizedTest
    @CsvSource({
        "towpath.name, two.words",
        "towpath.name, ''",
        "towpath.name, ümlaut",
        "towpath.copy, some",
        "towpath.copy.threads, 65",
        "towpath.copy.order, random",
        "towpath.requests.topic, a topic",
        "towpath.requests.topic, ..",
        "towpath.dead.letters.topic, a/b",
        "towpath.resnapshot.only, '(shop'",
        "towpath.splice.cache.bytes, -1",
        "towpath.splice.cache.bytes, 64MiB",
        "producer.override.max.request.size, much"
    })
    void whatMakesNoSenseIsRefused(String key, String value) {
        Map<String, String> settings = settings(key, value);
        ConfigException refused = assertThrows(ConfigException.class, () -> SourceSettings.of(settings));
        assertTrue(refused.getMessage().contains(key), refused::getMessage);
        ConfigValue setting = new MongoSource().config().validateAll(settings).get(key);
        assertFalse(setting.errorMessages().isEmpty());
    }

    @ParameterizedTest
    @CsvSource({
        "exactly.once.support, , set it to required",
        "exactly.once.support, requested, set it to required",
        "transaction.boundary, interval, set it to poll",
        "transaction.boundary, connector, set it to poll",
        "key.converter, , ByteArrayConverter",
        "value.converter, org.apache.kafka.connect.json.JsonConverter, ByteArrayConverter",
        "header.converter, , ByteArrayConverter",
        "errors.tolerance, all, set it to none",
        "event.processing.failure.handling.mode, warn, set it to fail",
        "cursor.oversize.handling.mode, skip, set it to fail",
        "mongodb.authentication.class, , set it to io.towpath.debezium.RawDocuments",
        "producer.override.partitioner.class, , set it to io.towpath.connector.KeyPartitioner",
        "heartbeat.interval.ms, 0, set it to more than 0",
        "heartbeat.interval.ms, -1, set it to more than 0",
        "heartbeat.interval.ms, , set it to more than 0",
        "heartbeat.interval.ms, often, cannot be used",
        "cursor.pipeline, , let it begin with",
        "cursor.pipeline, '[', cannot be used",
        "collection.include.list, '(shop', Unclosed group",
        "database.exclude.list, '(shop', Unclosed group"
    })
    void whatLosesOrRepeatsSomethingIsRefused(String key, String value, String words) {
        Map<String, String> settings = settings(key, value);
        List<ConfigValue> values = new MongoSource().validate(settings).configValues();
        List<String> messages = values.stream()
                .filter(setting -> setting.name().equals(key))
                .flatMap(setting -> setting.errorMessages().stream())
                .toList();
        assertTrue(messages.stream().anyMatch(message -> message.startsWith("TWP-CONFIG: ")), messages::toString);
        assertTrue(messages.toString().contains(words), messages::toString);
        List<String> names = values.stream().map(ConfigValue::name).toList();
        assertTrue(names.containsAll(new MongoSource().config().names()), "Connect wants to see each of them");
    }

    @Test
    void wholeDocumentsNeedThemToBeLookedUp() {
        Map<String, String> settings = settings("towpath.whole.documents", "true");
        assertFalse(MongoSource.requirements(settings).areMet(), "with capture.mode=x");
        settings.put("capture.mode", "change_streams_update_full");
        assertTrue(MongoSource.requirements(settings).areMet());
    }

    @ParameterizedTest
    @ValueSource(strings = {"required", "REQUIRED"})
    void whatTheCommandLineDeploysIsAccepted(String support) {
        Map<String, String> settings = settings("exactly.once.support", support);
        List<ConfigValue> none = MongoSource.requirements(settings).addedTo(List.of());
        assertEquals(List.of(), none, "what has no error would hide Connect's own");
        settings.remove("transaction.boundary");
        assertTrue(MongoSource.requirements(settings).areMet(), "Connect's default is poll");
    }

    @Test
    void aTaskWithoutBoundariesDoesNotStart() {
        TowpathSourceTask task = new TowpathSourceTask();
        ConnectException refused =
                assertThrows(ConnectException.class, () -> task.start(settings("transaction.boundary", "interval")));
        assertTrue(refused.getMessage().startsWith("TWP-CONFIG: transaction.boundary"), refused::getMessage);
        task.stop();
    }

    private static Map<String, String> settings(String key, String value) {
        Map<String, String> settings = Definitions.filled("source.json");
        if (value == null) settings.remove(key);
        else settings.put(key, value);
        return settings;
    }
}
