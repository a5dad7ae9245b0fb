package io.towpath.sink;

import io.towpath.record.Change;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.bson.BsonDocument;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** Random documents, and random updates of places that exist in them, nearly exist, or do not exist. */
public final class RandomUpdates {
    private static final String[] NAMES = {"a", "b", "c", "0", "1", "2", "10"};
    private static final String[] ODD_NAMES = {"", "$d", "00", "-1", "\u00e9"};
    private static final RawBsonDocument LEAVES = new RawBsonDocument(Raw.document(Raw.everyType()));

    private final Random random;

    public RandomUpdates(long seed) {
        random = new Random(seed);
    }

    /** A document with this {@code _id}, in bytes. */
    public byte[] document(int id) {
        return Raw.document(Raw.join(Raw.int32("_id", id), fields(3, false)));
    }

    private byte[] fields(int depth, boolean isArray) {
        List<byte[]> fields = new ArrayList<>();
        List<String> names = new ArrayList<>(List.of(NAMES));
        int count = random.nextInt(5);
        for (int i = 0; i < count; i++) {
            String name = isArray ? Integer.toString(i) : names.remove(random.nextInt(names.size()));
            fields.add(
                    switch (depth == 0 ? 2 : random.nextInt(3)) {
                        case 0 -> Raw.element(3, name, Raw.document(fields(depth - 1, false)));
                        case 1 -> Raw.element(4, name, Raw.document(fields(depth - 1, true)));
                        default -> leaf(name);
                    });
        }
        return Raw.join(fields.toArray(byte[][]::new));
    }

    private byte[] leaf(String name) {
        byte[][] leaves = Raw.everyType();
        byte[] leaf = leaves[random.nextInt(leaves.length)];
        int value = 1;
        while (leaf[value] != 0) value++;
        return Raw.element(leaf[0], name, Arrays.copyOfRange(leaf, value + 1, leaf.length));
    }

    /** An update of up to five places, none within another; those that are set ascend as the server sorts them. */
    public Change.Update update(boolean odd) {
        TreeMap<String, BsonValue> set = new TreeMap<>(RandomUpdates::serverOrder);
        List<String> unset = new ArrayList<>();
        List<Change.Truncation> truncations = new ArrayList<>();
        List<String> taken = new ArrayList<>();
        List<String> all = new ArrayList<>();
        for (int i = random.nextInt(5); i >= 0; i--) {
            String path = path(odd);
            int kind = random.nextInt(8);
            boolean clashes = taken.stream()
                    .anyMatch(other -> (path + ".").startsWith(other + ".") || (other + ".").startsWith(path + "."));
            if (clashes || all.stream().anyMatch(other -> areOneIndex(path, other))) continue;
            all.add(path);
            if (kind == 0) {
                truncations.add(new Change.Truncation(path, random.nextInt(3)));
                continue; // what is set may lie within
            }
            taken.add(path);
            if (kind < 3) unset.add(path);
            else set.put(path, value());
        }
        BsonDocument ordered = new BsonDocument();
        set.forEach(ordered::append);
        return new Change.Update(ordered, unset, truncations);
    }

    /** Whether mongod 6.0 aborts at an update of both, if their place is an array: {@code a.0} and {@code a.00.b}. */
    private static boolean areOneIndex(String path, String other) {
        String[] names = path.split("\\.", -1);
        String[] others = other.split("\\.", -1);
        for (int i = 0; i < Math.min(names.length, others.length); i++)
            if (!names[i].equals(others[i])) return index(names[i]).equals(index(others[i]));
        return false;
    }

    private static String index(String name) {
        return name.matches("\\d+") ? name.replaceFirst("^0+(?=\\d)", "") : name;
    }

    private BsonValue value() {
        List<Map.Entry<String, BsonValue>> leaves = new ArrayList<>(LEAVES.entrySet());
        return leaves.get(random.nextInt(leaves.size())).getValue();
    }

    private String path(boolean odd) {
        StringBuilder path = new StringBuilder(name(odd));
        while (random.nextInt(3) > 0 && path.length() < 12) path.append('.').append(name(odd));
        return path.toString();
    }

    private String name(boolean odd) {
        String[] names = odd && random.nextInt(6) == 0 ? ODD_NAMES : NAMES;
        return names[random.nextInt(names.length)];
    }

    private static int serverOrder(String left, String right) {
        String[] lefts = left.split("\\.", -1);
        String[] rights = right.split("\\.", -1);
        for (int i = 0; i < Math.min(lefts.length, rights.length); i++) {
            int order = Comparator.<String>naturalOrder().compare(lefts[i], rights[i]);
            boolean numbers = lefts[i].matches("0|[1-9]\\d*") && rights[i].matches("0|[1-9]\\d*");
            if (numbers) order = Integer.compare(Integer.parseInt(lefts[i]), Integer.parseInt(rights[i]));
            if (order != 0) return order;
        }
        return Integer.compare(lefts.length, rights.length);
    }
}
