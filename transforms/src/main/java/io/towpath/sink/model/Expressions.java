package io.towpath.sink.model;

import java.util.List;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/** Expressions of the server's aggregation language. */
final class Expressions {
    private Expressions() {}

    static BsonValue objectOrEmpty(BsonValue base) {
        BsonValue isObject = op("$eq", list(op("$type", variable("v")), new BsonString("object")));
        return let("v", base, choose(isObject, variable("v"), literal(new BsonDocument())));
    }

    static BsonValue without(List<BsonValue> names, BsonValue object) {
        if (names.isEmpty()) return object;
        BsonValue stays = op("$not", list(op("$in", list(new BsonString("$$this.k"), literal(new BsonArray(names))))));
        BsonDocument filter = new BsonDocument("input", op("$objectToArray", object)).append("cond", stays);
        return op("$arrayToObject", op("$filter", filter));
    }

    /** An object of one field, or of none when the value is missing. */
    static BsonValue field(String name, BsonValue value) {
        if (!name.isEmpty() && !name.startsWith("$")) return new BsonDocument(name, value);
        BsonValue pair = new BsonDocument("k", literal(new BsonString(name))).append("v", variable("f"));
        BsonValue isMissing = op("$eq", list(op("$type", variable("f")), new BsonString("missing")));
        return let("f", value, choose(isMissing, literal(new BsonDocument()), op("$arrayToObject", list(list(pair)))));
    }

    static BsonValue fieldOf(String variable, String name) {
        return op(
                "$getField",
                new BsonDocument("field", literal(new BsonString(name))).append("input", variable(variable)));
    }

    static BsonValue let(String name, BsonValue value, BsonValue in) {
        return let(new BsonDocument(name, value), in);
    }

    static BsonValue let(BsonDocument variables, BsonValue in) {
        return op("$let", new BsonDocument("vars", variables).append("in", in));
    }

    static BsonValue choose(BsonValue condition, BsonValue then, BsonValue otherwise) {
        return op("$cond", list(condition, then, otherwise));
    }

    static BsonValue variable(String name) {
        return new BsonString("$$" + name);
    }

    static BsonValue literal(BsonValue value) {
        return op("$literal", value);
    }

    static BsonArray list(BsonValue... values) {
        return new BsonArray(List.of(values));
    }

    static BsonDocument op(String operator, BsonValue operand) {
        return new BsonDocument(operator, operand);
    }
}
