package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.ClusterTime;
import io.towpath.source.DebeziumSettings;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;

class DebeziumStreamTest {
    /** Of the settings that are passed on, the one that says how long this class pauses. */
    private static final String PAUSE = "retriable.restart.connector.wait.ms";

    @Test
    void aPollEndsBeforeItHasTooManyTopics() {
        List<SourceRecord> records = Stream.of("a", "b", "a", "b", "c", "a", "d")
                .map(topic -> new SourceRecord(Map.of(), Map.of(), topic, null, null))
                .toList();
        assertEquals(4, DebeziumStream.endOfTopics(records, 2));
        assertEquals(6, DebeziumStream.endOfTopics(records, 3));
        assertEquals(7, DebeziumStream.endOfTopics(records, 4));
        assertEquals(0, DebeziumStream.endOfTopics(List.of(), 2));
    }

    @Test
    void debeziumGetsEverySettingThatIsPassedOn() {
        Map<String, String> passedOn = new HashMap<>();
        DebeziumSettings.RULES.rules().stream()
                .filter(rule -> rule.why().isEmpty())
                .flatMap(rule -> rule.names().stream())
                .filter(name -> !name.equals(PAUSE))
                .forEach(name -> passedOn.put(name, "value of " + name));
        assertTrue(passedOn.containsKey("mongodb.ssl.truststore") && passedOn.containsKey("max.batch.size"));
        Map<String, String> settings = DebeziumStream.settings(passedOn, new ClusterTime(1, 1), List.of());
        passedOn.forEach((name, value) -> assertEquals(value, settings.get(name), name));
    }
}
