package io.towpath.source.progress;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.source.MongoSource;
import io.towpath.support.Definitions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Which task reads which ranges. */
class CopyShareTest {
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 7, 10})
    void eachRangeBelongsToOneTaskAndThoseOfACollectionAreSpread(int tasks) {
        for (String namespace : List.of("shop.orders", "shop.lines", "shop.\u00e4", "a.polygenelubricants")) {
            int[] counts = new int[tasks];
            for (int range = 0; range < 1024; range++) {
                int at = range;
                int[] owners = IntStream.range(0, tasks)
                        .filter(task -> new CopyShare(task, tasks).has(namespace, at))
                        .toArray();
                assertEquals(1, owners.length, namespace);
                counts[owners[0]]++;
            }
            int most = IntStream.of(counts).max().orElseThrow();
            assertTrue(most - IntStream.of(counts).min().orElseThrow() <= 1, namespace);
        }
    }

    @Test
    void smallCollectionsAreSpreadToo() {
        CopyShare share = new CopyShare(0, 4);
        long own =
                IntStream.range(0, 1000).filter(n -> share.has("shop.c" + n, 0)).count();
        assertTrue(own > 200 && own < 300, own + " of 1000");
    }

    @Test
    void aSingleTaskHasTheConfigurationThatItAlwaysHad() {
        Map<String, String> connector = Map.of("name", "p-source");
        assertSame(connector, CopyShare.configurations(connector, 1).get(0));
    }

    @Test
    void tasksDifferInTheirNumberOnlyAndWithoutACopyThereIsOne() {
        Map<String, String> settings = Definitions.filled("source.json");
        settings.put("mongodb.connection.string", "mongodb://127.0.0.1:1");
        settings.put("capture.mode", "change_streams");
        assertEquals(List.of(settings), taskConfigs(settings, 1), "as Debezium has it");

        List<Map<String, String>> three = taskConfigs(settings, 3);

        assertEquals(3, three.size());
        for (int task = 0; task < 3; task++) {
            Map<String, String> expected = new HashMap<>(settings);
            expected.put(CopyShare.TASK, Integer.toString(task));
            expected.put(CopyShare.TASKS, "3");
            expected.put("tasks.max", "3");
            assertEquals(expected, three.get(task));
        }
        settings.put("towpath.copy", "none");
        assertEquals(1, taskConfigs(settings, 3).size());
    }

    private static List<Map<String, String>> taskConfigs(Map<String, String> settings, int maxTasks) {
        MongoSource connector = new MongoSource();
        Map<String, String> configuration = new HashMap<>(settings);
        configuration.put("tasks.max", Integer.toString(maxTasks));
        connector.start(configuration);
        return connector.taskConfigs(maxTasks);
    }
}
