package io.towpath.sink;

import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import io.towpath.sink.model.TotalUpdate;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonDouble;
import org.bson.BsonInt32;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.BsonTimestamp;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** Random writes of one document among few names, so that they meet one another's places: many change something, some are refused. */
final class RandomHistory {
    private static final String[] NAMES = {"a", "b", "c", "z", "0", "1", "10", "list", "list", "more"};
    private static final String[] ARRAYS = {"list", "more", "a.list", "b.0", "list.0", "c.1.more"};

    private final Random random;
    private final RandomUpdates updates;

    RandomHistory(long seed) {
        random = new Random(seed);
        updates = new RandomUpdates(random.nextLong());
    }

    WriteModel<RawBsonDocument> first(int id) {
        return new InsertOneModel<>(document(id));
    }

    WriteModel<RawBsonDocument> next(int id) {
        BsonDocument filter = new BsonDocument("_id", new BsonInt32(id));
        int kind = random.nextInt(hasNamesTwice(id) ? 76 : 100);
        if (kind < 12) return new UpdateOneModel<>(filter, whole());
        if (kind < 28) return new UpdateOneModel<>(filter, new BsonDocument("$set", places(1 + random.nextInt(4))));
        if (kind < 38) return new UpdateOneModel<>(filter, new BsonDocument("$unset", places(1 + random.nextInt(2))));
        if (kind < 54) return new UpdateOneModel<>(filter, push());
        if (kind < 62) return new UpdateOneModel<>(filter, whole());
        if (kind < 72) return new UpdateOneModel<>(filter, new BsonDocument("$set", element()));
        if (kind < 76) return new UpdateOneModel<>(filter, both());
        if (kind < 84) return new UpdateOneModel<>(filter, List.of(new BsonDocument("$set", places(3))));
        if (kind < 89) return new UpdateOneModel<>(filter, shortened());
        if (kind < 92)
            return new UpdateOneModel<>(
                    filter, TotalUpdate.of(updates.update(true)).orElseThrow());
        if (kind < 93)
            return new UpdateOneModel<>(
                    filter,
                    BsonDocument.parse("{$rename: {'%s': 'r%d'}}".formatted(name(), random.nextInt(1_000_000))));
        if (kind < 95) return new ReplaceOneModel<>(filter, document(id));
        if (kind < 97) return new DeleteOneModel<>(filter);
        return new InsertOneModel<>(document(id));
    }

    /** A pipeline leaves one of them, and the change stream does not tell. */
    private static boolean hasNamesTwice(int id) {
        return id % 10 == 0;
    }

    private RawBsonDocument document(int id) {
        if (random.nextInt(4) == 0) return new RawBsonDocument(updates.document(id));
        byte[] alike =
                switch (random.nextInt(3)) {
                    case 0 -> Raw.int32("_id", id);
                    case 1 -> Raw.int64("_id", id);
                    default -> Raw.doubleOf("_id", id);
                };
        List<byte[]> fields = new ArrayList<>(List.of(alike));
        if (random.nextBoolean())
            fields.add(Raw.embedded("a", Raw.int32("z", 1), Raw.array("list", Raw.int32("0", 0))));
        if (random.nextBoolean())
            fields.add(Raw.array("list", Raw.embedded("0", Raw.int32("b", 1)), Raw.string("1", "x")));
        if (random.nextInt(4) == 0) fields.add(Raw.int32("twice", 1));
        if (hasNamesTwice(id)) fields.add(Raw.int32("twice", 2));
        if (random.nextBoolean())
            fields.add(Raw.embedded("c", Raw.embedded("1", Raw.array("more")), Raw.int32("0", 2)));
        return new RawBsonDocument(Raw.document(fields.toArray(byte[][]::new)));
    }

    private BsonDocument places(int count) {
        BsonDocument places = new BsonDocument();
        for (int i = 0; i < count; i++) places.append(path(), value(2));
        return places;
    }

    private BsonDocument push() {
        BsonArray values = new BsonArray();
        for (int i = random.nextInt(8) == 0 ? 3 : 1; i > 0; i--) values.add(value(1));
        BsonDocument push = new BsonDocument("$push", new BsonDocument(array(), new BsonDocument("$each", values)));
        if (random.nextBoolean()) push.append("$inc", new BsonDocument("z", new BsonInt32(1)));
        return push;
    }

    /** Changes after which the server tells the whole array. */
    private BsonDocument whole() {
        String[] shapes = {
            "{$push: {'%s': {$each: [%d], $slice: -3}}}",
            "{$push: {'%s': {$each: [%d], $position: 0}}}",
            "{$pop: {'%s': 1, y: %d}}",
            "{$pull: {'%s': {$lt: %d}}}",
            "{$addToSet: {'%s': %d}}"
        };
        return BsonDocument.parse(shapes[random.nextInt(shapes.length)].formatted(array(), random.nextInt(4)));
    }

    private BsonDocument element() {
        String place = array() + "." + random.nextInt(7);
        return new BsonDocument(random.nextBoolean() ? place : place + "." + name(), value(2));
    }

    private BsonDocument both() {
        return new BsonDocument("$set", new BsonDocument(name(), value(1)))
                .append("$unset", new BsonDocument("a." + name(), new BsonString("")))
                .append("$inc", new BsonDocument("b." + name(), new BsonInt64(1)));
    }

    private List<BsonDocument> shortened() {
        String name = random.nextBoolean() ? "list" : "more";
        int size = 1 + random.nextInt(5);
        String[] shapes = {
            "{$set: {%1$s: {$slice: [{$ifNull: ['$%1$s', []]}, %2$d]}}}",
            "{$set: {%1$s: {$concatArrays: [{$slice: ['$%1$s', %2$d]}, [{t: %2$d}]]}}}",
            "{$set: {%1$s: {$concatArrays: [[{t: %2$d}], {$slice: ['$%1$s', 1, 2]}]}}}",
            "{$set: {%1$s: {$concatArrays: ['$%1$s', ['longer', 'longer', 'longer', 'longer', %2$d]]}}}",
            "{$set: {a: {list: {$slice: ['$a.list', %2$d]}}, n: '%1$s'}}"
        };
        return List.of(BsonDocument.parse(shapes[random.nextInt(shapes.length)].formatted(name, size)));
    }

    private String path() {
        StringBuilder path = new StringBuilder(name());
        while (random.nextInt(5) < 2 && path.length() < 10) path.append('.').append(name());
        return path.toString();
    }

    private String array() {
        return random.nextInt(3) == 0 ? path() : ARRAYS[random.nextInt(ARRAYS.length)];
    }

    private String name() {
        return random.nextInt(40) == 0 ? "\u00e9" : NAMES[random.nextInt(NAMES.length)];
    }

    private BsonValue value(int depth) {
        switch (random.nextInt(depth == 0 ? 5 : 8)) {
            case 0:
                return new BsonInt32(random.nextInt(5));
            case 1:
                return new BsonString("text");
            case 2:
                return new BsonDouble(random.nextDouble());
            case 3:
                return new BsonTimestamp(0);
            case 4:
                return new BsonInt64(random.nextInt(5));
            case 5:
                BsonArray array = new BsonArray();
                for (int i = random.nextInt(5); i > 0; i--) array.add(value(depth - 1));
                return array;
            default:
                BsonDocument document = new BsonDocument();
                for (int i = random.nextInt(4); i > 0; i--) document.append(name(), value(depth - 1));
                return document;
        }
    }
}
