package io.towpath.sink.model;

import static io.towpath.sink.model.Expressions.choose;
import static io.towpath.sink.model.Expressions.field;
import static io.towpath.sink.model.Expressions.fieldOf;
import static io.towpath.sink.model.Expressions.let;
import static io.towpath.sink.model.Expressions.list;
import static io.towpath.sink.model.Expressions.literal;
import static io.towpath.sink.model.Expressions.objectOrEmpty;
import static io.towpath.sink.model.Expressions.op;
import static io.towpath.sink.model.Expressions.variable;
import static io.towpath.sink.model.Expressions.without;

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
 * An update as an aggregation pipeline that writes exactly the named paths and never fails, whatever the document looks like by now: a
 * value in the middle of a path that is no container becomes one. So a part of the log can be applied again (after a crash, or over a
 * newer copy) without being rejected half-way; every path's last writer is in that part. It fails only where {@link SingleNames} says that
 * mongod might abort.
 */
public final class TotalUpdate {
    /** The server takes at most 200 levels of BSON in a command (measured: 196 in the expression itself). */
    private static final int DEEPEST = 190;

    private static final String TWICE =
            "a field on the way to what the update changes is in the document twice; its _id is of type ";
    private static final BsonValue REST = new BsonInt32(Integer.MAX_VALUE);
    private static final BsonArray NULLS = new BsonArray(List.of(BsonNull.VALUE));

    private TotalUpdate() {}

    /** Empty when the expression is nested too deep for the server: paths of two dozen names, deep values below long paths. */
    public static Optional<List<BsonDocument>> of(Change.Update update) {
        PathNode root = PathNode.of(update);
        BsonValue whole = object(root, variable("ROOT"));
        BsonValue guarded = choose(SingleNames.of(root), whole, failure());
        if (nesting(guarded) > DEEPEST) return Optional.empty();
        return Optional.of(List.of(new BsonDocument("$replaceWith", guarded)));
    }

    /** Its error has the reason. Not a constant, which the server would evaluate before it looks at any document. */
    private static BsonValue failure() {
        BsonValue reason = op("$concat", list(new BsonString(TWICE), op("$type", new BsonString("$_id"))));
        return op("$toInt", reason);
    }

    static int nesting(BsonValue value) {
        if (!value.isDocument() && !value.isArray()) return 0;
        Collection<BsonValue> inside = value.isDocument() ? value.asDocument().values() : value.asArray();
        int deepest = 0;
        for (BsonValue each : inside) deepest = Math.max(deepest, nesting(each));
        return deepest + 1;
    }

    /** The new value in place of {@code present}. */
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

    /** Whether the variable u is a container: a removal creates none. */
    private static BsonValue isContainer(PathNode node) {
        BsonArray types = list(new BsonString("object"));
        if (node.isIndexed()) types.add(new BsonString("array"));
        return op("$in", list(op("$type", variable("u")), types));
    }

    /** An array truncated to a length; any other value becomes an empty one. */
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

    /** The named fields written over an object; any other value becomes an empty one. Existing fields keep their place. */
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

    /** Numbered children: elements of an array, fields of anything else. Computes each child's value once, in the variable e<number>. */
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

    /** The array in the variable a with some elements written; nulls fill the gap beyond its end, as the server does it. */
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

    /** An unset never removes an element: it becomes null. */
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

    private static void flush(BsonDocument leaves, List<BsonValue> parts) {
        if (!leaves.isEmpty()) parts.add(literal(leaves));
    }

    private static List<BsonValue> removed(PathNode node) {
        return node.children.entrySet().stream()
                .filter(child -> child.getValue().isRemoved())
                .map(child -> (BsonValue) new BsonString(child.getKey()))
                .toList();
    }
}
