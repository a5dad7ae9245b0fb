package io.towpath.source.progress;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * The ranges of the initial copy that one task of the connector reads; each range belongs to exactly one task. The first task also plans
 * the ranges, and does everything else.
 *
 * @param task from 0
 * @param tasks how many the connector has
 */
public record CopyShare(int task, int tasks) {
    public static final String TASK = "towpath.task";
    public static final String TASKS = "towpath.tasks";

    /** The configurations of so many tasks; of a single one, the connector's own. */
    public static List<Map<String, String>> configurations(Map<String, String> connector, int tasks) {
        if (tasks == 1) return List.of(connector);
        return IntStream.range(0, tasks)
                .mapToObj(task -> {
                    Map<String, String> configuration = new HashMap<>(connector);
                    configuration.put(TASK, Integer.toString(task));
                    configuration.put(TASKS, Integer.toString(tasks));
                    return configuration;
                })
                .toList();
    }

    public boolean isFirst() {
        return task == 0;
    }

    public boolean isWhole() {
        return tasks == 1;
    }

    public boolean has(String namespace, int range) {
        return taskOf(namespace, range) == task;
    }

    /** Consecutive ranges belong to different tasks, and the first ranges of small collections also do. */
    int taskOf(String namespace, int range) {
        return Math.floorMod(namespace.hashCode() + range, tasks);
    }
}
