package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.Change;
import io.towpath.record.Truncation;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;

/** An update as MongoDB's update operators. */
final class ClassicUpdate {
    private ClassicUpdate() {}

    static BsonDocument of(Change.Update update) {
        BsonDocument operators = new BsonDocument();
        if (!update.set().isEmpty()) operators.append(Change.SET, update.set());
        BsonDocument unset = new BsonDocument();
        update.unset().forEach(path -> unset.append(path, new BsonString("")));
        if (!unset.isEmpty()) operators.append(Change.UNSET, unset);
        BsonDocument push = new BsonDocument();
        update.truncations()
                .forEach(cut -> push.append(
                        cut.path(),
                        new BsonDocument("$each", new BsonArray()).append("$slice", new BsonInt32(cut.newSize()))));
        if (!push.isEmpty()) operators.append("$push", push);
        return operators;
    }

    /**
     * Whether the server can neither refuse the operators, whatever the document looks like, nor add the new fields in another order:
     * only top-level names, and those that are set ascend as the server sorts them (names that begin with a digit are left out, as it
     * sorts numbers by value).
     */
    static boolean isSafe(Change.Update update) {
        boolean plain = Stream.concat(update.set().keySet().stream(), update.unset().stream())
                .allMatch(ClassicUpdate::isPlainName);
        return plain
                && update.truncations().isEmpty()
                && (update.set().size() <= 1 || ascends(update.set().keySet().iterator()));
    }

    /**
     * Whether the operators, on the very document that was updated at the source, give the bytes that it has there. New fields come in
     * the server's own order, so those that are set in one place must ascend by it; a place with further places below it was there
     * before. No operator may name a place within another one's.
     */
    static boolean isExact(Change.Update update) {
        Set<String> taken = new HashSet<>();
        Map<String, String> lastIn = new HashMap<>();
        for (String path : update.set().keySet()) {
            if (!isPlainPath(path) || !taken.add(path)) return false;
            int name = path.lastIndexOf('.') + 1;
            String last = lastIn.put(path.substring(0, name), path.substring(name));
            if (last != null && !FieldOrder.ascends(last, path.substring(name))) return false;
        }
        for (String path : update.unset()) if (!isPlainPath(path) || !taken.add(path)) return false;
        for (Truncation cut : update.truncations())
            if (!isPlainPath(cut.path()) || !taken.add(cut.path())) return false;
        return taken.stream().noneMatch(path -> isWithinAnother(path, taken));
    }

    private static boolean isPlainPath(String path) {
        for (int from = 0, to; from <= path.length(); from = to + 1) {
            to = path.indexOf('.', from) < 0 ? path.length() : path.indexOf('.', from);
            if (to == from || path.charAt(from) == '$') return false;
        }
        return true;
    }

    private static boolean isWithinAnother(String path, Set<String> taken) {
        for (int dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1)) {
            if (taken.contains(path.substring(0, dot))) return true;
        }
        return false;
    }

    private static boolean isPlainName(String path) {
        return !path.isEmpty() && !path.startsWith("$") && path.indexOf('.') < 0;
    }

    private static boolean ascends(Iterator<String> names) {
        byte[] last = new byte[0];
        while (names.hasNext()) {
            byte[] name = names.next().getBytes(UTF_8);
            if ((name[0] >= '0' && name[0] <= '9') || Arrays.compareUnsigned(last, name) > 0) return false;
            last = name;
        }
        return true;
    }
}
