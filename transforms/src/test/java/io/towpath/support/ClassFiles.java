package io.towpath.support;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** What our compiled classes use, by the constants in their files. */
public final class ClassFiles {
    private static final Path CLASSES = Path.of("target/classes");
    private static final Pattern CLASS =
            Pattern.compile("(?:io/towpath|io/debezium|org/apache/kafka|com/mongodb)(?:/[a-z]\\w*)*/[A-Z][\\w$]*");
    private static final int UTF8 = 1;
    private static final Set<Integer> EIGHT_BYTES = Set.of(5, 6);
    private static final Set<Integer> FOUR_BYTES = Set.of(3, 4, 9, 10, 11, 12, 17, 18);

    private ClassFiles() {}

    /** Class of ours → the classes that it uses, its own nested ones not; names have slashes, and those of nested classes are the outer one's. */
    public static Map<String, Set<String>> uses() throws IOException {
        Map<String, Set<String>> uses = new TreeMap<>();
        try (Stream<Path> files = Files.walk(CLASSES)) {
            for (Path file :
                    files.filter(file -> file.toString().endsWith(".class")).toList()) {
                String name = CLASSES.relativize(file).toString().replace('\\', '/');
                String from = outer(name.substring(0, name.length() - ".class".length()));
                Set<String> used = uses.computeIfAbsent(from, unused -> new TreeSet<>());
                addUsed(file, used);
                used.remove(from);
            }
        }
        return uses;
    }

    private static String outer(String name) {
        return name.replaceAll("\\$.*", "");
    }

    private static void addUsed(Path file, Set<String> used) throws IOException {
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            in.skipNBytes(8);
            int count = in.readUnsignedShort();
            for (int index = 1; index < count; index++) {
                int tag = in.readUnsignedByte();
                if (tag == UTF8) {
                    Matcher names = CLASS.matcher(in.readUTF());
                    while (names.find()) used.add(outer(names.group()));
                } else {
                    in.skipNBytes(EIGHT_BYTES.contains(tag) ? 8 : FOUR_BYTES.contains(tag) ? 4 : tag == 15 ? 3 : 2);
                }
                if (EIGHT_BYTES.contains(tag)) index++;
            }
        }
    }

    /** The package in a class's name. */
    public static String packageOf(String name) {
        return name.substring(0, name.lastIndexOf('/'));
    }
}
