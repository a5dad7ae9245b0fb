package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Which packages use which, by the constants in the class files: neither packages nor rooms of packages depend on one another in a circle. */
class PackagesTest {
    private static final Path CLASSES = Path.of("target/classes");
    private static final Pattern CLASS =
            Pattern.compile("((?:io/towpath|org/apache/kafka|com/mongodb)(?:/\\w+)*)/[A-Z]");
    private static final int UTF8 = 1;
    private static final Set<Integer> EIGHT_BYTES = Set.of(5, 6);
    private static final Set<Integer> FOUR_BYTES = Set.of(3, 4, 9, 10, 11, 12, 17, 18);
    private static final Map<String, Set<String>> USES = new TreeMap<>();

    @BeforeAll
    static void readClasses() throws IOException {
        try (Stream<Path> files = Files.walk(CLASSES)) {
            for (Path file :
                    files.filter(file -> file.toString().endsWith(".class")).toList()) {
                String from = CLASSES.relativize(file.getParent()).toString().replace('\\', '/');
                Set<String> used = USES.computeIfAbsent(from, unused -> new TreeSet<>());
                for (String text : texts(file)) {
                    Matcher names = CLASS.matcher(text);
                    while (names.find()) used.add(names.group(1));
                }
                used.remove(from);
            }
        }
        assertTrue(USES.get("io/towpath/sink").contains("com/mongodb/client"), "nothing was read");
    }

    /** The strings in a class file's constant pool, with the names of all classes that it uses. */
    private static List<String> texts(Path file) throws IOException {
        List<String> texts = new ArrayList<>();
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            in.skipNBytes(8);
            int count = in.readUnsignedShort();
            for (int index = 1; index < count; index++) {
                int tag = in.readUnsignedByte();
                if (tag == UTF8) texts.add(in.readUTF());
                else in.skipNBytes(EIGHT_BYTES.contains(tag) ? 8 : FOUR_BYTES.contains(tag) ? 4 : tag == 15 ? 3 : 2);
                if (EIGHT_BYTES.contains(tag)) index++;
            }
        }
        return texts;
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
