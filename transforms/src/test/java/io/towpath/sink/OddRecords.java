package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import io.towpath.support.Garbage;
import io.towpath.support.Raw;
import io.towpath.support.Splices;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;

/** Records of one topic, some as they should be, some as nothing should write them. */
final class OddRecords {
    /** Names of places that cannot be what an update says of them, alone or together. */
    private static final String[] PATHS = {
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "$",
        "$x",
        "a.$",
        "a.$[]",
        "a.$[e]",
        "_id",
        "_id.x",
        "a",
        "a.b",
        "a.b.c",
        "a.0",
        "a.-1",
        "a.00",
        "a.1500001",
        "a.99999999999999999999",
        "list",
        "list.5",
        "list.1499999",
        "\u00e9",
        "x y"
    };

    private final Random random;
    private final Garbage garbage;
    private final RandomUpdates updates;
    private final String topic;

    OddRecords(Random random, String topic) {
        this.random = random;
        this.garbage = new Garbage(random);
        this.updates = new RandomUpdates(random.nextLong());
        this.topic = topic;
    }

    /** A record that keeps the contract, of a document with this {@code _id}. */
    SinkRecord good(int id, long offset) {
        byte[] value =
                switch (random.nextInt(5)) {
                    case 0 -> null;
                    case 1 -> updates.update(false).encode();
                    default -> updates.document(id);
                };
        return record(offset, key(id), isEmpty(value) ? updates.document(id) : value, headers("1", "u", offset));
    }

    /** A record that breaks it. */
    SinkRecord bad(int id, long offset) {
        byte[] key = key(id);
        byte[] document = updates.document(id);
        ConnectHeaders headers = headers("1", "u", offset);
        return switch (random.nextInt(10)) {
            case 0 -> record(offset, null, document, headers);
            case 1 -> record(offset, garbage.like(Raw.document(Raw.int32("x", 1))), document, headers);
            case 2 -> record(offset, Raw.document(Raw.int32("_id", id)), document, headers); // not canonical
            case 3 -> record(offset, Raw.document(Raw.int64("_id", id), Raw.int32("x", 1)), null, headers);
            case 4 -> record(offset, key(id + 1), document, headers);
            case 5 -> record(offset, key, document, headers("2", "u", offset));
            case 6 -> record(offset, "{\"id\": 5}", "{\"after\": null}", headers);
            case 7 -> record(offset, key, neither(), headers);
            default -> record(offset, key, damaged(document), headers);
        };
    }

    /** An update whose places may not be right: the destination has to say. */
    SinkRecord doubtful(int id, long offset) {
        BsonDocument update = new BsonDocument();
        if (random.nextInt(4) > 0) update.append("$set", places(false));
        if (random.nextInt(2) > 0) update.append("$unset", places(false));
        if (random.nextInt(3) == 0 || update.isEmpty()) update.append("$truncate", places(true));
        if (random.nextInt(4) == 0) {
            Splice splice = Splices.random(random, "spliced.list", random.nextInt(4));
            Change.Update others = (Change.Update) Change.decode(BsonBytes.of(update));
            Change all = new Change.Update(others.set(), others.unset(), others.truncations(), List.of(splice));
            return record(offset, key(id), all.encode(), headers("1", "u", offset));
        }
        return record(offset, key(id), BsonBytes.of(update), headers("1", "u", offset));
    }

    /** Headers that say nothing, or nonsense, of a record that is right otherwise. */
    SinkRecord withOddHeaders(int id, long offset) {
        ConnectHeaders headers = new ConnectHeaders();
        if (random.nextBoolean()) headers.addBytes("v", (random.nextBoolean() ? "1" : "1 x  y").getBytes(UTF_8));
        if (random.nextBoolean()) headers.addBytes("x", garbage.bytes(random.nextInt(9)));
        if (random.nextBoolean()) headers.addString("v", random.nextBoolean() ? "1 x 1:2" : "1 c y z row-follows z");
        if (random.nextBoolean()) headers.addInt("x", 5);
        if (random.nextBoolean()) headers.add("x", null, null);
        return record(offset, key(id), updates.document(id), headers);
    }

    private BsonDocument places(boolean sizes) {
        BsonDocument places = new BsonDocument();
        for (int i = random.nextInt(4); i >= 0; i--) {
            String path = PATHS[random.nextInt(PATHS.length)];
            places.append(
                    path,
                    sizes ? new BsonInt32(random.nextInt(4) == 0 ? Integer.MAX_VALUE : 2) : new BsonString("odd"));
        }
        return places;
    }

    private byte[] neither() {
        byte[][] values = {
            Raw.document(),
            Raw.document(Raw.int32("x", 1)),
            Raw.document(Raw.int32("$set", 1)),
            Raw.document(Raw.embedded("$set")),
            Raw.document(Raw.embedded("$inc", Raw.int32("x", 1))),
            Raw.document(Raw.embedded("$set", Raw.int32("x", 1)), Raw.embedded("$set", Raw.int32("y", 1))),
            Raw.document(Raw.embedded("$truncate", Raw.int32("x", -1))),
            Raw.document(Raw.embedded("$truncate", Raw.string("x", "1"))),
            Raw.document(Raw.embedded("$splice", Raw.int32("x", 1))),
            Raw.document(Raw.embedded("$splice", Raw.array("x.0", Raw.int32("0", 1)))),
            json("{$splice: {x: [1]}}"),
            json("{$splice: {x: [1, [0, 2, []]]}}"),
            json("{$splice: {x: [1, [0, 1]]}}"),
            json("{$splice: {x: [{$numberLong: '1'}, [0, 1, []]]}}"),
            json("{$splice: {x: [2147483647, [0, 1, []]]}}"),
            json("{$set: {'x.1': 1}, $splice: {x: [1, [0, 1, []]]}}"),
            BsonBytes.of(new BsonDocument("$truncate", new BsonDocument("x", BsonBoolean.TRUE))),
            BsonBytes.of(new BsonDocument("$set", new BsonDocument("x" + ".x".repeat(300), new BsonInt32(1)))),
        };
        return values[random.nextInt(values.length)];
    }

    private static byte[] json(String json) {
        return BsonBytes.of(BsonDocument.parse(json));
    }

    /** So that it can be neither a document of this {@code _id} nor an update. */
    private byte[] damaged(byte[] document) {
        byte[] bad = garbage.like(document);
        try {
            io.towpath.record.WholeBson.require(bad);
            return Raw.join(bad, new byte[1]);
        } catch (io.towpath.record.ContractException damaged) {
            return bad;
        }
    }

    private static boolean isEmpty(byte[] value) {
        return value != null && value.length == 5;
    }

    private static byte[] key(int id) {
        return CanonicalKey.of(Raw.document(Raw.int32("_id", id)));
    }

    private static ConnectHeaders headers(String version, String operation, long offset) {
        ConnectHeaders headers = new ConnectHeaders();
        headers.addBytes(
                "v",
                "%s %s 1700000000:%d 1700000000000"
                        .formatted(version, operation, offset)
                        .getBytes(UTF_8));
        return headers;
    }

    private SinkRecord record(long offset, Object key, Object value, ConnectHeaders headers) {
        return new SinkRecord(
                topic,
                0,
                key instanceof String ? Schema.STRING_SCHEMA : Schema.OPTIONAL_BYTES_SCHEMA,
                key,
                value instanceof String ? Schema.STRING_SCHEMA : Schema.OPTIONAL_BYTES_SCHEMA,
                value,
                offset,
                null,
                TimestampType.LOG_APPEND_TIME,
                headers);
    }
}
