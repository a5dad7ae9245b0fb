package io.towpath.sink.model;

import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.bson.BsonArray;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonNull;
import org.bson.BsonString;
import org.bson.BsonValue;

/** What a server computes of the aggregation expressions that {@link TotalUpdate} is made of. A value that is missing is null. */
final class ServerExpressions {
    private final BsonDocument root;

    private ServerExpressions(BsonDocument root) {
        this.root = root;
    }

    static BsonValue evaluated(BsonValue expression, BsonDocument root) {
        return new ServerExpressions(root).of(expression, Map.of("ROOT", root));
    }

    private BsonValue of(BsonValue expression, Map<String, BsonValue> variables) {
        if (expression instanceof BsonString text) return text(text, variables);
        if (expression instanceof BsonArray array)
            return new BsonArray(array.stream()
                    .map(each -> of(each, variables))
                    .map(ServerExpressions::inArray)
                    .toList());
        if (!(expression instanceof BsonDocument document)) return expression;
        boolean isOperator = !document.isEmpty() && document.getFirstKey().startsWith("$");
        if (isOperator) return operator(document.getFirstKey(), document.get(document.getFirstKey()), variables);
        BsonDocument object = new BsonDocument();
        document.forEach((name, value) -> {
            BsonValue computed = of(value, variables);
            if (computed != null) object.append(name, computed);
        });
        return object;
    }

    private static BsonValue inArray(BsonValue value) {
        return value == null ? BsonNull.VALUE : value;
    }

    private BsonValue text(BsonString text, Map<String, BsonValue> variables) {
        String path = text.getValue();
        if (!path.startsWith("$")) return text;
        if (!path.startsWith("$$")) return root.get(path.substring(1));
        String[] names = path.substring(2).split("\\.");
        BsonValue value = variables.get(names[0]);
        for (String name : Arrays.asList(names).subList(1, names.length))
            value = value.asDocument().get(name);
        return value;
    }

    private BsonValue operator(String name, BsonValue operand, Map<String, BsonValue> variables) {
        UnaryOperator<BsonValue> of = each -> of(each, variables);
        switch (name) {
            case "$literal" -> {
                return operand;
            }
            case "$let" -> {
                Map<String, BsonValue> more = new HashMap<>(variables);
                operand.asDocument().getDocument("vars").forEach((each, value) -> more.put(each, of.apply(value)));
                return of(operand.asDocument().get("in"), more);
            }
            case "$cond" -> {
                List<BsonValue> parts = operand.asArray();
                return of.apply(of.apply(parts.get(0)).asBoolean().getValue() ? parts.get(1) : parts.get(2));
            }
            case "$getField" -> {
                BsonValue from = of.apply(operand.asDocument().get("input"));
                String field =
                        of.apply(operand.asDocument().get("field")).asString().getValue();
                return from instanceof BsonDocument document ? document.get(field) : null;
            }
            case "$map", "$filter" -> {
                boolean isMap = name.equals("$map");
                BsonArray results = new BsonArray();
                for (BsonValue each :
                        of.apply(operand.asDocument().get("input")).asArray()) {
                    Map<String, BsonValue> more = new HashMap<>(variables);
                    more.put("this", each);
                    BsonValue result = of(operand.asDocument().get(isMap ? "in" : "cond"), more);
                    if (isMap) results.add(result);
                    else if (result.asBoolean().getValue()) results.add(each);
                }
                return results;
            }
            default -> {
                List<BsonValue> given = operand instanceof BsonArray array ? array : List.of(operand);
                return computed(name, given.stream().map(of).toArray(BsonValue[]::new));
            }
        }
    }

    private static BsonValue computed(String operator, BsonValue[] given) {
        return switch (operator) {
            case "$eq" -> BsonBoolean.valueOf(given[0].equals(given[1]));
            case "$not" -> BsonBoolean.valueOf(!given[0].asBoolean().getValue());
            case "$and" -> BsonBoolean.valueOf(
                    Arrays.stream(given).allMatch(each -> each.asBoolean().getValue()));
            case "$in" -> BsonBoolean.valueOf(given[1].asArray().contains(given[0]));
            case "$gt" -> BsonBoolean.valueOf(number(given[0]) > number(given[1]));
            case "$lte" -> BsonBoolean.valueOf(number(given[0]) <= number(given[1]));
            case "$isArray" -> BsonBoolean.valueOf(given[0] instanceof BsonArray);
            case "$type" -> new BsonString(type(given[0]));
            case "$size" -> new BsonInt32(given[0].asArray().size());
            case "$arrayElemAt" -> {
                BsonArray array = given[0].asArray();
                yield number(given[1]) < array.size() ? array.get(number(given[1])) : null;
            }
            case "$slice" -> {
                BsonArray array = given[0].asArray();
                int from = given.length == 2 ? 0 : Math.min(array.size(), number(given[1]));
                int count = number(given[given.length - 1]);
                if (count <= 0) throw new IllegalArgumentException("the server accepts no such count");
                yield new BsonArray(array.subList(from, (int) Math.min(from + (long) count, array.size())));
            }
            case "$range" -> new BsonArray(IntStream.range(number(given[0]), number(given[1]))
                    .mapToObj(BsonInt32::new)
                    .toList());
            case "$concatArrays" -> new BsonArray(Arrays.stream(given)
                    .flatMap(each -> each.asArray().stream())
                    .toList());
            case "$setUnion" -> new BsonArray(List.copyOf(new LinkedHashSet<>(given[0].asArray())));
            case "$mergeObjects" -> {
                BsonDocument merged = new BsonDocument();
                for (BsonValue each : given) if (each != null) merged.putAll(each.asDocument());
                yield merged;
            }
            case "$objectToArray" -> {
                BsonArray pairs = new BsonArray();
                given[0].asDocument()
                        .forEach((name, value) ->
                                pairs.add(new BsonDocument("k", new BsonString(name)).append("v", value)));
                yield pairs;
            }
            case "$arrayToObject" -> {
                BsonDocument object = new BsonDocument();
                for (BsonValue pair : given[0].asArray())
                    object.put(
                            pair.asDocument().getString("k").getValue(),
                            pair.asDocument().get("v"));
                yield object;
            }
            default -> throw new IllegalArgumentException(operator);
        };
    }

    private static int number(BsonValue value) {
        return value.asInt32().getValue();
    }

    private static String type(BsonValue value) {
        if (value == null) return "missing";
        return value.isDocument() ? "object" : value.isArray() ? "array" : "another";
    }
}
