package io.towpath.sink.model;

import static io.towpath.sink.model.Expressions.choose;
import static io.towpath.sink.model.Expressions.fieldOf;
import static io.towpath.sink.model.Expressions.let;
import static io.towpath.sink.model.Expressions.list;
import static io.towpath.sink.model.Expressions.literal;
import static io.towpath.sink.model.Expressions.op;
import static io.towpath.sink.model.Expressions.variable;

import org.bson.BsonArray;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * The condition that no name on the way to what an aggregation pipeline changes is in its object twice. For a pipeline, mongod compares the
 * document before and after, and aborts (6.0.5: {@code Invariant failure result.second}) when a name is in the difference twice.
 */
final class SingleNames {
    private SingleNames() {}

    static BsonValue of(PathNode root) {
        return below(root, variable("ROOT"));
    }

    /** Of the places below this one, whose value is the variable o in it. */
    private static BsonValue below(PathNode node, BsonValue present) {
        BsonArray conditions = list(choose(isOfType("object"), areSingle(node), BsonBoolean.TRUE));
        node.children.forEach((name, child) -> {
            if (!child.children.isEmpty()) conditions.add(below(child, value(name)));
        });
        return let("o", present, op("$and", conditions));
    }

    private static BsonValue value(String name) {
        BsonValue field = fieldOf("o", name);
        if (!PathNode.isIndex(name)) return field;
        BsonValue element = op("$arrayElemAt", list(variable("o"), new BsonInt32(Integer.parseInt(name))));
        return choose(isOfType("array"), element, field);
    }

    private static BsonValue isOfType(String type) {
        return op("$eq", list(op("$type", variable("o")), new BsonString(type)));
    }

    private static BsonValue areSingle(PathNode node) {
        BsonArray names = new BsonArray();
        node.children.keySet().forEach(name -> names.add(new BsonString(name)));
        BsonValue isOne = op("$in", list(variable("this.k"), literal(names)));
        BsonValue fields =
                op("$filter", new BsonDocument("input", op("$objectToArray", variable("o"))).append("cond", isOne));
        if (names.size() == 1) return op("$lte", list(op("$size", fields), new BsonInt32(1)));
        BsonDocument map = new BsonDocument("input", fields).append("in", variable("this.k"));
        BsonValue different = op("$setUnion", list(variable("k")));
        return let("k", op("$map", map), op("$eq", list(op("$size", variable("k")), op("$size", different))));
    }
}
