package io.towpath.json;

import io.towpath.record.BsonBytes;
import io.towpath.record.SchemaChange;
import io.towpath.support.Raw;
import java.util.List;
import java.util.Map;
import org.bson.BsonDocument;

/** Keys and values as the log has them. */
final class LogRecords {
    static final byte[] KEY = bson("{_id: {$numberLong: '5'}}");
    static final byte[] DOCUMENT = bson("{_id: 5, total: {$numberLong: '70'}, at: {$date: '2026-11-21T14:42:38Z'}}");
    static final byte[] UPDATE = bson(
            "{$set: {'lines.1': {sku: 'B'}}, $unset: {gone: ''}, $truncate: {list: 3}, $splice: {'a.b': [1000, [0, 1, []], [1000, 0, [{n: 1}]]]}}");
    static final String UPDATE_JSON =
            "{\"$set\": {\"lines.1\": {\"sku\": \"B\"}}, \"$unset\": {\"gone\": \"\"}, \"$truncate\": {\"list\": 3}, \"$splice\": {\"a.b\": [1000, [0, 1, []], [1000, 0, [{\"n\": 1}]]]}}";
    static final byte[] EVERY_TYPE = Raw.document(Raw.int32("_id", 5), Raw.join(Raw.everyType()));
    static final SchemaChange DROP = new SchemaChange(
            "5:2/0/d.c",
            SchemaChange.Kind.DROP,
            "d.c",
            "",
            false,
            new BsonDocument(),
            List.of(),
            false,
            Map.of("p.d.c", 4));
    static final String DROP_KEY = "{\"ddl\": \"5:2/0/d.c\"}";

    private LogRecords() {}

    static byte[] bson(String json) {
        return BsonBytes.of(BsonDocument.parse(json));
    }
}
