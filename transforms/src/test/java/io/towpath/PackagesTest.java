package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.ClassFiles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Which packages use which, by the constants in the class files: neither packages nor rooms of packages depend on one another in a circle. */
class PackagesTest {
    private static final Map<String, Set<String>> USES = new TreeMap<>();

    @BeforeAll
    static void readClasses() throws IOException {
        ClassFiles.uses().forEach((name, used) -> {
            String from = ClassFiles.packageOf(name);
            Set<String> packages = USES.computeIfAbsent(from, unused -> new TreeSet<>());
            used.stream()
                    .map(ClassFiles::packageOf)
                    .filter(to -> !to.equals(from))
                    .forEach(packages::add);
        });
        assertTrue(USES.get("io/towpath/sink").contains("com/mongodb/client"), "nothing was read");
    }

    @Test
    void noPackagesUseOneAnotherInACircle() {
        assertEquals(List.of(), circle(USES));
    }

    @Test
    void noTopPackagesUseOneAnotherInACircle() {
        Map<String, Set<String>> tops = new TreeMap<>();
        USES.forEach((from, used) -> used.forEach(to -> {
            if (!top(from).equals(top(to)))
                tops.computeIfAbsent(top(from), unused -> new TreeSet<>()).add(top(to));
        }));
        assertEquals(List.of(), circle(tops));
    }

    private static String top(String name) {
        String[] parts = name.split("/");
        return String.join("/", List.of(parts).subList(0, Math.min(3, parts.length)));
    }

    @Test
    void aCircleIsFound() {
        assertEquals(
                List.of("b", "c", "b"),
                circle(new TreeMap<>(Map.of("a", Set.of("b"), "b", Set.of("c"), "c", Set.of("b")))));
    }

    @Test
    void theContractAndFoldingKnowNeitherKafkaNorTheDriversClient() {
        for (String name : List.of("io/towpath/record", "io/towpath/fold"))
            assertEquals(
                    List.of(),
                    USES.get(name).stream()
                            .filter(used -> used.startsWith("org/apache/kafka") || used.startsWith("com/mongodb"))
                            .toList(),
                    name);
    }

    /** The packages of a circle, its first again as the last; empty when there is none. */
    private static List<String> circle(Map<String, Set<String>> uses) {
        Set<String> done = new TreeSet<>();
        for (String start : uses.keySet()) {
            List<String> circle = circle(start, uses, new ArrayList<>(), done);
            if (!circle.isEmpty()) return circle;
        }
        return List.of();
    }

    private static List<String> circle(String at, Map<String, Set<String>> uses, List<String> path, Set<String> done) {
        if (path.contains(at)) {
            List<String> circle = new ArrayList<>(path.subList(path.indexOf(at), path.size()));
            circle.add(at);
            return circle;
        }
        if (!done.add(at)) return List.of();
        path.add(at);
        for (String next : uses.getOrDefault(at, Set.of())) {
            List<String> circle = circle(next, uses, path, done);
            if (!circle.isEmpty()) return circle;
        }
        path.remove(path.size() - 1);
        return List.of();
    }
}
