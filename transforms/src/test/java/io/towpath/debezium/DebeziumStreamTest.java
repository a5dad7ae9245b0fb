package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.ClusterTime;
import io.towpath.source.DebeziumSettings;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class DebeziumStreamTest {
    /** Of the settings that are passed on, the one that says how long this class pauses. */
    private static final String PAUSE = "retriable.restart.connector.wait.ms";

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
