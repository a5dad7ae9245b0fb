package io.towpath.fold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import org.bson.BsonArray;
import org.bson.BsonBinaryReader;
import org.bson.BsonDocument;
import org.bson.BsonNull;
import org.bson.BsonValue;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.DecoderContext;

/**
 * What a server does with an update of a document that exists: it changes the places of all operators in its own order, and refuses a place
 * within another, a field of a scalar, and a field of an array that is no index.
 */
final class ServerModel {
    private final BsonDocument document;

    ServerModel(byte[] document) {
        this.document = decoded(document);
    }

    static BsonDocument decoded(byte[] bytes) {
        return new BsonDocumentCodec()
                .decode(
                        new BsonBinaryReader(ByteBuffer.wrap(bytes)),
                        DecoderContext.builder().build());
    }

    BsonDocument document() {
        return document;
    }

    /** Fails where the server would refuse the update, or match no document. */
    void apply(Fold.Folded.Update update) {
        update.lengths()
                .forEach((path, length) ->
                        assertEquals(length, list(path).size(), () -> "the length that is matched of " + path));
        BsonDocument parts = decoded(update.bytes());
        if (update.isStage()) parts.getDocument("$set").forEach((path, value) -> set(path, computed(value)));
        else applyOperators(parts);
    }

    private void applyOperators(BsonDocument operators) {
        TreeMap<String, String> operatorOf = new TreeMap<>(ServerModel::order);
        operators.forEach((operator, places) -> places.asDocument().keySet().forEach(path -> {
            for (String other : operatorOf.keySet())
                assertTrue(!isWithin(path, other) && !isWithin(other, path), path + " conflicts with " + other);
            operatorOf.put(path, operator);
        }));
        operatorOf.forEach((path, operator) -> {
            BsonValue value = operators.getDocument(operator).get(path);
            switch (operator) {
                case "$set" -> set(path, value);
                case "$unset" -> unset(path);
                case "$push" -> push(list(path), value.asDocument());
                default -> throw new AssertionError(operator);
            }
        });
    }

    private static boolean isWithin(String path, String other) {
        return (path + '.').startsWith(other + '.');
    }

    /** Field by field: numbers by value, all else by bytes. */
    private static int order(String left, String right) {
        String[] lefts = left.split("\\.");
        String[] rights = right.split("\\.");
        for (int i = 0; i < Math.min(lefts.length, rights.length); i++) {
            boolean areNumbers = lefts[i].matches("\\d+") && rights[i].matches("\\d+");
            int order = areNumbers
                    ? Integer.compare(Integer.parseInt(lefts[i]), Integer.parseInt(rights[i]))
                    : Comparator.<String>naturalOrder().compare(lefts[i], rights[i]);
            if (order != 0) return order;
        }
        return Integer.compare(lefts.length, rights.length);
    }

    private void set(String path, BsonValue value) {
        String[] names = path.split("\\.");
        BsonValue parent = document;
        for (int i = 0; i < names.length - 1; i++) {
            BsonValue child = child(parent, names[i]);
            if (child == null) put(parent, names[i], child = new BsonDocument());
            parent = child;
        }
        put(parent, names[names.length - 1], value);
    }

    private static void put(BsonValue parent, String name, BsonValue value) {
        if (parent instanceof BsonDocument fields) {
            fields.put(name, value);
            return;
        }
        BsonArray array = assertInstanceOf(BsonArray.class, parent, () -> "a scalar has no field " + name);
        assertTrue(name.matches("\\d+"), () -> "an array has no field " + name);
        while (array.size() <= Integer.parseInt(name)) array.add(BsonNull.VALUE);
        array.set(Integer.parseInt(name), value);
    }

    private static BsonValue child(BsonValue parent, String name) {
        if (parent instanceof BsonDocument fields) return fields.get(name);
        boolean isElement =
                parent instanceof BsonArray array && name.matches("\\d+") && Integer.parseInt(name) < array.size();
        return isElement ? parent.asArray().get(Integer.parseInt(name)) : null;
    }

    private void unset(String path) {
        int dot = path.lastIndexOf('.');
        BsonValue parent = dot < 0 ? document : at(path.substring(0, dot));
        String name = path.substring(dot + 1);
        if (parent instanceof BsonDocument fields) fields.remove(name);
        else if (child(parent, name) != null) put(parent, name, BsonNull.VALUE);
    }

    private BsonValue at(String path) {
        BsonValue value = document;
        for (String name : path.split("\\.")) value = child(value, name);
        return value;
    }

    private BsonArray list(String path) {
        return assertInstanceOf(BsonArray.class, at(path), () -> path + " is no array");
    }

    private static void push(BsonArray array, BsonDocument push) {
        List<BsonValue> each = push.getArray("$each");
        array.addAll(push.containsKey("$position") ? push.getInt32("$position").getValue() : array.size(), each);
        if (!push.containsKey("$slice")) return;
        int slice = push.getInt32("$slice").getValue();
        int left = Math.min(array.size(), Math.abs(slice));
        int from = slice < 0 ? array.size() - left : 0;
        List<BsonValue> kept = new ArrayList<>(array.subList(from, from + left));
        array.clear();
        array.addAll(kept);
    }

    /** {@code {$concatArrays: [{$slice: ['$path', from, count]}, {$literal: […]}, …]}}. */
    private BsonArray computed(BsonValue expression) {
        BsonArray array = new BsonArray();
        for (BsonValue part : expression.asDocument().getArray("$concatArrays")) {
            if (part.asDocument().containsKey("$literal")) {
                array.addAll(part.asDocument().getArray("$literal"));
            } else {
                BsonArray slice = part.asDocument().getArray("$slice");
                int from = slice.get(1).asInt32().getValue();
                int count = slice.get(2).asInt32().getValue();
                assertTrue(count > 0, "the server accepts no other count");
                List<BsonValue> before = list(slice.get(0).asString().getValue().substring(1));
                array.addAll(before.subList(from, from + count));
            }
        }
        assertNotNull(array);
        return array;
    }
}
