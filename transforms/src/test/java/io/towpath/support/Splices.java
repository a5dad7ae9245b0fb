package io.towpath.support;

import io.towpath.record.BsonElements;
import io.towpath.record.Splice;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** Splices of arrays, made at random or from what changed, and applied by hand. An element is its type and its value. */
public final class Splices {
    private Splices() {}

    /** The elements of a BSON array that begins here. */
    public static List<byte[]> elements(byte[] bytes, int start) {
        List<byte[]> elements = new ArrayList<>();
        BsonElements array = new BsonElements(bytes, start);
        while (array.next()) {
            byte[] value = Arrays.copyOfRange(bytes, array.valueStart(), array.valueEnd());
            elements.add(Raw.join(new byte[] {array.type()}, value));
        }
        return elements;
    }

    /** A BSON array of these. */
    public static byte[] array(List<byte[]> elements) {
        byte[][] named = new byte[elements.size()][];
        for (int i = 0; i < named.length; i++) {
            byte[] element = elements.get(i);
            named[i] = Raw.element(element[0], Integer.toString(i), Arrays.copyOfRange(element, 1, element.length));
        }
        return Raw.document(named);
    }

    /** The array after the splice, as the record contract says it. */
    public static List<byte[]> applied(List<byte[]> before, Splice splice) {
        if (before.size() != splice.length()) throw new IllegalArgumentException("another array");
        List<byte[]> after = new ArrayList<>();
        int next = 0;
        for (Splice.Edit edit : splice.edits()) {
            after.addAll(before.subList(next, edit.at()));
            after.addAll(elements(edit.inserted(), 0));
            next = edit.at() + edit.deleted();
        }
        after.addAll(before.subList(next, before.size()));
        return after;
    }

    /** A splice of an array of this length. */
    public static Splice random(Random random, String path, int length) {
        int some = length == 0 ? 0 : 1 + random.nextInt(Math.min(3, length));
        List<byte[]> inserted = some(random, 1);
        List<Splice.Edit> edits = new ArrayList<>();
        switch (random.nextInt(12)) {
            case 0 -> edits.add(edit(length, 0, inserted));
            case 1, 2 -> {
                edits.add(edit(0, some, List.of()));
                edits.add(edit(length, 0, inserted));
            }
            case 3 -> edits.add(edit(random.nextInt(length + 1), 0, inserted));
            case 4 -> {
                int at = random.nextInt(length - some + 1);
                edits.add(edit(at, 0, inserted));
                edits.add(edit(length - some, some, List.of()));
            }
            case 5 -> edits.add(edit(length - some, some, random.nextBoolean() ? inserted : List.of()));
            case 6 -> edits.add(edit(0, some, random.nextBoolean() ? inserted : List.of()));
            case 7 -> edits.add(edit(0, length, random.nextBoolean() ? inserted : List.of()));
            default -> {
                int end = 0;
                for (int i = random.nextInt(4); i >= 0; i--) {
                    int at = end + random.nextInt(length - end + 1);
                    end = at + random.nextInt(Math.min(3, length - at) + 1);
                    edits.add(edit(at, end - at, some(random, 0)));
                }
            }
        }
        return new Splice(path, length, edits);
    }

    /** A splice that makes the one array of the other, in the fewest edits, or in some more. */
    public static Splice between(Random random, String path, List<byte[]> before, List<byte[]> after) {
        int[][] common = new int[before.size() + 1][after.size() + 1];
        for (int i = before.size() - 1; i >= 0; i--) {
            for (int j = after.size() - 1; j >= 0; j--)
                common[i][j] = Arrays.equals(before.get(i), after.get(j))
                        ? common[i + 1][j + 1] + 1
                        : Math.max(common[i + 1][j], common[i][j + 1]);
        }
        List<Splice.Edit> edits = new ArrayList<>();
        int i = 0;
        int j = 0;
        int deleted = 0;
        List<byte[]> inserted = new ArrayList<>();
        while (i < before.size() || j < after.size()) {
            boolean same = i < before.size() && j < after.size() && Arrays.equals(before.get(i), after.get(j));
            if (same || deleted + inserted.size() > 0 && random.nextInt(8) == 0) {
                if (deleted + inserted.size() > 0) edits.add(edit(i - deleted, deleted, inserted));
                deleted = 0;
                inserted = new ArrayList<>();
            }
            if (same) {
                i++;
                j++;
            } else if (j == after.size() || i < before.size() && common[i + 1][j] >= common[i][j + 1]) {
                i++;
                deleted++;
            } else {
                inserted.add(after.get(j++));
            }
        }
        if (deleted + inserted.size() > 0 || edits.isEmpty()) edits.add(edit(i - deleted, deleted, inserted));
        return new Splice(path, before.size(), edits);
    }

    public static Splice.Edit edit(int at, int deleted, List<byte[]> inserted) {
        return new Splice.Edit(at, deleted, array(inserted));
    }

    /** Up to three elements of any type. */
    public static List<byte[]> some(Random random, int least) {
        List<byte[]> all = elements(Raw.document(Raw.everyType()), 0);
        List<byte[]> some = new ArrayList<>();
        for (int i = least + random.nextInt(3); i > 0; i--)
            some.add(
                    random.nextInt(3) == 0
                            ? all.get(random.nextInt(all.size()))
                            : elements(Raw.document(Raw.int32("0", random.nextInt(1000))), 0)
                                    .get(0));
        return some;
    }
}
