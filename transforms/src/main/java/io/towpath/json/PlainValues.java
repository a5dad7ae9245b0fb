package io.towpath.json;

import io.towpath.record.ClusterTime;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.bson.BsonBinary;
import org.bson.BsonBinarySubType;
import org.bson.BsonDocument;
import org.bson.BsonRegularExpression;
import org.bson.BsonValue;

/**
 * BSON as the values that JSON has, for sinks that know no BSON: ObjectIds, decimals, dates (ISO 8601, UTC), UUIDs, binary data (Base64) and
 * all other types without an equal in JSON become strings, and undefined becomes null. A field name that occurs twice keeps its last value.
 */
final class PlainValues {
    private static final int UUID_BYTES = 16;

    private PlainValues() {}

    static Map<String, Object> of(BsonDocument document) {
        Map<String, Object> fields = new LinkedHashMap<>();
        document.forEach((name, value) -> fields.put(name, of(value)));
        return fields;
    }

    static Object of(BsonValue value) {
        return switch (value.getBsonType()) {
            case DOCUMENT -> of(value.asDocument());
            case ARRAY -> list(value.asArray());
            case STRING -> value.asString().getValue();
            case SYMBOL -> value.asSymbol().getSymbol();
            case BOOLEAN -> value.asBoolean().getValue();
            case INT32 -> value.asInt32().getValue();
            case INT64 -> value.asInt64().getValue();
            case DOUBLE -> number(value.asDouble().getValue());
            case DECIMAL128 -> value.asDecimal128().getValue().toString();
            case DATE_TIME -> Instant.ofEpochMilli(value.asDateTime().getValue())
                    .toString();
            case TIMESTAMP -> ClusterTime.of(value.asTimestamp()).toString();
            case OBJECT_ID -> value.asObjectId().getValue().toHexString();
            case BINARY -> binary(value.asBinary());
            case REGULAR_EXPRESSION -> regex(value.asRegularExpression());
            case JAVASCRIPT -> value.asJavaScript().getCode();
            case JAVASCRIPT_WITH_SCOPE -> Map.of(
                    "$code", value.asJavaScriptWithScope().getCode(),
                    "$scope", of(value.asJavaScriptWithScope().getScope()));
            case DB_POINTER -> Map.of(
                    "$ref", value.asDBPointer().getNamespace(),
                    "$id", value.asDBPointer().getId().toHexString());
            case MIN_KEY -> "MinKey";
            case MAX_KEY -> "MaxKey";
            case NULL, UNDEFINED -> null;
            case END_OF_DOCUMENT -> throw new IllegalArgumentException("no value has this type");
        };
    }

    private static List<Object> list(List<BsonValue> values) {
        List<Object> list = new ArrayList<>(values.size());
        values.forEach(value -> list.add(of(value)));
        return list;
    }

    /** JSON has no NaN and no infinity. */
    private static Object number(double value) {
        if (Double.isFinite(value)) return value;
        return Double.toString(value);
    }

    private static String binary(BsonBinary value) {
        boolean isUuid =
                value.getType() == BsonBinarySubType.UUID_STANDARD.getValue() && value.getData().length == UUID_BYTES;
        return isUuid ? value.asUuid().toString() : Base64.getEncoder().encodeToString(value.getData());
    }

    private static String regex(BsonRegularExpression value) {
        return "/%s/%s".formatted(value.getPattern(), value.getOptions());
    }
}
