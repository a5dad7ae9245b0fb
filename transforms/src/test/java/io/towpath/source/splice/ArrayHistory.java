package io.towpath.source.splice;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.support.LogModel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.bson.BsonArray;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonDouble;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;

/** The random history of one document with arrays, as record values without splices. */
final class ArrayHistory {
    private static final String[] ARRAYS = {
        "list", "more", "a.list", "a.b.more", "\u00e9.list", "n.0.list", "n.$x", "n..y"
    };
    private static final int LEAST = 10;

    private final Random random;
    private final int id;
    /** What some arrays were earlier, by path. */
    private final Map<String, BsonArray> earlier = new HashMap<>();

    ArrayHistory(Random random, int id) {
        this.random = random;
        this.id = id;
    }

    /** Null for a delete. */
    byte[] next(LogModel source) {
        int kind = source.document() == null ? 0 : random.nextInt(100);
        if (kind < 3) return BsonBytes.of(document());
        if (kind < 5) return null;
        BsonDocument set = new BsonDocument();
        List<String> unset = new ArrayList<>();
        List<Change.Truncation> cuts = new ArrayList<>();
        for (int places = 1 + random.nextInt(3); places > 0; places--) {
            String path = ARRAYS[Math.min(random.nextInt(ARRAYS.length), random.nextInt(ARRAYS.length))];
            if (source.at(path) instanceof BsonArray array) {
                if (random.nextInt(3) == 0) earlier.put(path, array.clone());
                change(path, array, set, unset, cuts);
            } else {
                set.append(path, random.nextInt(8) == 0 ? element() : array(path));
            }
        }
        if (random.nextInt(3) == 0) set.append("count", new BsonInt32(random.nextInt()));
        // no array: a server would refuse a field in it
        if (random.nextInt(60) == 0) set.append("a", random.nextBoolean() ? new BsonInt32(1) : parent());
        if (random.nextInt(60) == 0) unset.add(random.nextBoolean() ? "a" : "a.b");
        if (set.isEmpty() && unset.isEmpty() && cuts.isEmpty()) set.append("count", new BsonInt32(0));
        return new Change.Update(set, unset.stream().distinct().toList(), distinct(cuts)).encode();
    }

    private static List<Change.Truncation> distinct(List<Change.Truncation> cuts) {
        return cuts.isEmpty() ? List.of() : List.of(cuts.get(0));
    }

    private BsonDocument document() {
        BsonDocument document = new BsonDocument("_id", new BsonInt32(id)).append("n", new BsonInt32(1));
        if (random.nextBoolean()) document.append("list", array("list"));
        if (random.nextBoolean()) document.append("a", parent());
        return document;
    }

    private BsonDocument parent() {
        return new BsonDocument("list", array("a.list")).append("b", new BsonDocument("more", array("a.b.more")));
    }

    private void change(
            String path, BsonArray array, BsonDocument set, List<String> unset, List<Change.Truncation> cuts) {
        int at = random.nextInt(array.size() + 1);
        switch (random.nextInt(24)) {
            case 0 -> set.append(path, array(path));
            case 1 -> set.append(path + "." + array.size(), element());
            case 2 -> set.append(path + "." + (array.size() + random.nextInt(2)), element());
            case 3 -> set.append(path + "." + at, random.nextInt(8) == 0 ? array(path) : element());
            case 4 -> set.append(path + "." + at + ".x", element());
            case 5 -> unset.add(path + "." + at);
            case 6 -> unset.add(path + "." + at + ".x");
            case 7 -> unset.add(path);
            case 8 -> set.append(path, element());
            case 9 -> cuts.add(new Change.Truncation(path, at));
            case 10 -> {
                cuts.add(new Change.Truncation(path, at));
                set.append(path + "." + random.nextInt(at + 1), element());
            }
            case 11 -> cuts.add(new Change.Truncation(path + "." + at + ".y", 1));
            default -> set.append(path, edited(array));
        }
    }

    private BsonArray edited(BsonArray array) {
        List<BsonValue> values = new ArrayList<>(array.getValues());
        int size = values.size();
        switch (random.nextInt(7)) {
            case 0 -> {
                values.add(element());
                values.subList(0, Math.max(0, values.size() - 30)).clear();
            }
            case 1 -> {
                values.add(0, element());
                while (values.size() > 30) values.remove(values.size() - 1);
            }
            case 2 -> values.subList(0, Math.min(1, size)).clear();
            case 3 -> values.removeIf(value -> random.nextInt(10) == 0);
            case 4 -> values.addAll(random.nextInt(size + 1), List.of(element(), element()));
            case 5 -> values.replaceAll(value -> random.nextInt(15) == 0 ? element() : value);
            default -> values.addAll(List.of(element(), element()));
        }
        while (values.size() < LEAST && random.nextInt(4) > 0) values.add(element());
        return new BsonArray(values);
    }

    /** Another one, or one as it was earlier. */
    private BsonArray array(String path) {
        if (earlier.containsKey(path) && random.nextInt(3) > 0)
            return earlier.get(path).clone();
        int size = random.nextInt(10) == 0 ? random.nextInt(3) : LEAST + random.nextInt(20);
        return new BsonArray(
                IntStream.range(0, size).mapToObj(unused -> element()).toList());
    }

    private BsonValue element() {
        return switch (random.nextInt(9)) {
            case 0 -> new BsonInt32(random.nextInt(3));
            case 1 -> new BsonInt64(random.nextInt(3));
            case 2 -> random.nextBoolean() ? BsonNull.VALUE : BsonBoolean.TRUE;
            case 3 -> new BsonDouble(random.nextInt(3));
            case 4, 5 -> new BsonString("text ".repeat(random.nextInt(20)) + random.nextInt());
            case 6 -> new BsonArray(List.of(new BsonInt32(random.nextInt(3)), new BsonString("y".repeat(20))));
            default -> new BsonDocument("x", new BsonInt32(random.nextInt()))
                    .append("y", new BsonArray(List.of(BsonNull.VALUE, BsonBoolean.TRUE)))
                    .append("t", new BsonString("t".repeat(random.nextInt(80))));
        };
    }
}
