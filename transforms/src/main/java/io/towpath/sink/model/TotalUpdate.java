package io.towpath.sink;

import io.towpath.record.Change;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * An update as an aggregation pipeline that writes exactly the named paths and never fails, whatever the document looks like by now:
 * what is no container on the way becomes one. A stretch of the log can so be applied again (after a crash, or over a copy that is
 * already newer) without being refused half-way; every path's last writer is in the stretch.
 */
final class TotalUpdate {
    /** The server takes no more than 200 levels of BSON in a command (seen: 196 in the expression itself). */
    private static final int DEEPEST = 190;

    private static final BsonValue REST = new BsonInt32(Integer.MAX_VALUE);
    private static final BsonArray NULLS = new BsonArray(List.of(BsonNull.VALUE));

    private TotalUpdate() {}

    /** Empty when the server would find the expression nested too deep: paths of two dozen names, deep values below long paths. */
    static Optional<List<BsonDocument>> of(Change.Update update) {
        BsonValue whole = object(PathNode.of(update), new BsonString("$$ROOT"));
        if (nesting(whole) > DEEPEST) return Optional.empty();
        return Optional.of(List.of(new BsonDocument("$replaceWith", whole)));
    }

    static int nesting(BsonValue value) {
        if (!value.isDocument() && !value.isArray()) return 0;
        Collection<BsonValue> inside = value.isDocument() ? value.asDocument().values() : value.asArray();
        int deepest = 0;
        for (BsonValue each : inside) deepest = Math.max(deepest, nesting(each));
        return deepest + 1;
    }

    /** What becomes of the value that {@code present} gives. */
    private static BsonValue expression(PathNode node, BsonValue present) {
        if (node.isLeaf()) return literal(node.value);
        BsonValue base = base(node, present);
        if (node.children.isEmpty()) return base;
        if (node.writesBelow()) return below(node, base);
        return let("u", base, choose(isContainer(node), below(node, variable("u")), variable("u")));
    }

    private static BsonValue base(PathNode node, BsonValue present) {
        if (node.value != null) return literal(node.value);
        if (node.unset) return new BsonString("$$REMOVE");
        return node.newSize.isPresent() ? truncated(present, node.newSize.getAsInt()) : present;
    }

    private static BsonValue below(PathNode node, BsonValue base) {
        return node.isIndexed() ? elementsOrFields(node, base) : object(node, base);
    }

    /** Whether the variable u has something to remove from: removing makes no containers. */
    private static BsonValue isContainer(PathNode node) {
        BsonArray types = list(new BsonString("object"));
        if (node.isIndexed()) types.add(new BsonString("array"));
        return op("$in", list(op("$type", variable("u")), types));
    }

    /** An array cut to a length; what is no array becomes an empty one. */
    private static BsonValue truncated(BsonValue base, int newSize) {
        if (newSize == 0) return literal(new BsonArray());
        return let(
                "v",
                base,
                choose(
                        op("$isArray", list(variable("v"))),
                        op("$slice", list(variable("v"), new BsonInt32(newSize))),
                        literal(new BsonArray())));
    }

    /** The named fields written over an object; what is no object becomes an empty one. Fields that are there keep their place. */
    private static BsonValue object(PathNode node, BsonValue base) {
        List<BsonValue> parts = new ArrayList<>();
        parts.add(without(removed(node), variable("o")));
        BsonDocument leaves = new BsonDocument();
        for (Map.Entry<String, PathNode> child : node.staying()) {
            if (child.getValue().isLeaf()) {
                leaves.append(child.getKey(), child.getValue().value);
                continue;
            }
            flush(leaves, parts);
            leaves = new BsonDocument();
            parts.add(field(child.getKey(), expression(child.getValue(), fieldOf("o", child.getKey()))));
        }
        flush(leaves, parts);
        return let("o", objectOrEmpty(base), op("$mergeObjects", new BsonArray(parts)));
    }

    /** Numbered children: elements of an array, fields of anything else. Each child's value is computed once, in the variable e<number>. */
    private static BsonValue elementsOrFields(PathNode node, BsonValue base) {
        BsonDocument values = new BsonDocument();
        List<BsonValue> fields = new ArrayList<>();
        fields.add(without(removed(node), variable("o")));
        for (Map.Entry<String, PathNode> child : node.staying()) {
            String name = child.getKey();
            if (!PathNode.isIndex(name)) {
                fields.add(field(name, expression(child.getValue(), fieldOf("o", name))));
                continue;
            }
            BsonValue element = op("$arrayElemAt", list(variable("a"), new BsonInt32(Integer.parseInt(name))));
            BsonValue present = choose(op("$isArray", list(variable("a"))), element, fieldOf("a", name));
            values.append("e" + name, expression(child.getValue(), present));
            fields.add(field(name, variable("e" + name)));
        }
        BsonValue object = let("o", objectOrEmpty(variable("a")), op("$mergeObjects", new BsonArray(fields)));
        BsonValue either = choose(op("$isArray", list(variable("a"))), elements(node), object);
        return let("a", base, let(values, either));
    }

    /** The array in the variable a with some elements written; as the server does, nulls fill the gap to what lies beyond its end. */
    private static BsonValue elements(PathNode node) {
        TreeMap<Integer, PathNode> children = new TreeMap<>();
        node.children.forEach((name, child) -> {
            if (PathNode.isIndex(name)) children.put(Integer.parseInt(name), child);
        });
        List<BsonValue> parts = new ArrayList<>();
        int next = 0;
        for (Map.Entry<Integer, PathNode> child : children.entrySet()) {
            int index = child.getKey();
            if (index > next)
                parts.add(op("$slice", list(variable("p"), new BsonInt32(next), new BsonInt32(index - next))));
            parts.add(element(index, child.getValue()));
            next = index + 1;
        }
        parts.add(op("$slice", list(variable("p"), new BsonInt32(next), REST)));
        return let("p", padded(node), op("$concatArrays", new BsonArray(parts)));
    }

    /** An element is never taken out by an unset: it becomes null. */
    private static BsonValue element(int index, PathNode node) {
        BsonArray written = node.isRemoved() ? NULLS : list(variable("e" + index));
        BsonValue exists = op("$gt", list(op("$size", variable("p")), new BsonInt32(index)));
        return node.onlyRemoves() ? choose(exists, written, new BsonArray()) : written;
    }

    private static BsonValue padded(PathNode node) {
        int size = node.staying().stream()
                .filter(child -> !child.getValue().onlyRemoves())
                .mapToInt(child -> Integer.parseInt(child.getKey()) + 1)
                .max()
                .orElse(0);
        if (size == 0) return variable("a");
        BsonValue missing = op("$range", list(op("$size", variable("a")), new BsonInt32(size)));
        return op(
                "$concatArrays",
                list(variable("a"), op("$map", new BsonDocument("input", missing).append("in", BsonNull.VALUE))));
    }

    private static BsonValue objectOrEmpty(BsonValue base) {
        BsonValue isObject = op("$eq", list(op("$type", variable("v")), new BsonString("object")));
        return let("v", base, choose(isObject, variable("v"), literal(new BsonDocument())));
    }

    private static void flush(BsonDocument leaves, List<BsonValue> parts) {
        if (!leaves.isEmpty()) parts.add(literal(leaves));
    }

    private static List<BsonValue> removed(PathNode node) {
        return node.children.entrySet().stream()
                .filter(child -> child.getValue().isRemoved())
                .map(child -> (BsonValue) new BsonString(child.getKey()))
                .toList();
    }

    private static BsonValue without(List<BsonValue> names, BsonValue object) {
        if (names.isEmpty()) return object;
        BsonValue stays = op("$not", list(op("$in", list(new BsonString("$$this.k"), literal(new BsonArray(names))))));
        BsonDocument filter = new BsonDocument("input", op("$objectToArray", object)).append("cond", stays);
        return op("$arrayToObject", op("$filter", filter));
    }

    /** An object of one field, or of none when the value is missing. */
    private static BsonValue field(String name, BsonValue value) {
        if (!name.isEmpty() && !name.startsWith("$")) return new BsonDocument(name, value);
        BsonValue pair = new BsonDocument("k", literal(new BsonString(name))).append("v", variable("f"));
        BsonValue isMissing = op("$eq", list(op("$type", variable("f")), new BsonString("missing")));
        return let("f", value, choose(isMissing, literal(new BsonDocument()), op("$arrayToObject", list(list(pair)))));
    }

    private static BsonValue fieldOf(String variable, String name) {
        return op(
                "$getField",
                new BsonDocument("field", literal(new BsonString(name))).append("input", variable(variable)));
    }

    private static BsonValue let(String name, BsonValue value, BsonValue in) {
        return let(new BsonDocument(name, value), in);
    }

    private static BsonValue let(BsonDocument variables, BsonValue in) {
        return op("$let", new BsonDocument("vars", variables).append("in", in));
    }

    private static BsonValue choose(BsonValue condition, BsonValue then, BsonValue otherwise) {
        return op("$cond", list(condition, then, otherwise));
    }

    private static BsonValue variable(String name) {
        return new BsonString("$$" + name);
    }

    private static BsonValue literal(BsonValue value) {
        return op("$literal", value);
    }

    private static BsonArray list(BsonValue... values) {
        return new BsonArray(List.of(values));
    }

    private static BsonDocument op(String operator, BsonValue operand) {
        return new BsonDocument(operator, operand);
    }
}
