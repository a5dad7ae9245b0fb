package io.towpath.sink.ddl;

import io.towpath.record.BsonBytes;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * Options and indexes as a destination has them while changes stream in, without what would reject or delete documents; a cutover restores
 * that. {@code verifier/towpath_verifier/metadata.py} does alike.
 */
final class Relaxed {
    private static final String VALIDATOR = "validator";
    private static final String ACTION = "validationAction";
    private static final String COLLATION = "collation";
    private static final String EXPIRES = "expireAfterSeconds";
    private static final BsonString WARN = new BsonString("warn");
    private static final BsonString ERROR = new BsonString("error");
    private static final BsonDocument SIMPLE = new BsonDocument("locale", new BsonString("simple"));
    /** Options that the server adds, that newer servers no longer use, and that limit a collection. */
    private static final Set<String> NO_OPTIONS = Set.of(
            "uuid",
            "autoIndexId",
            "flags",
            "temp",
            "create",
            "recordPreImages",
            "idIndex",
            "capped",
            "size",
            "max",
            EXPIRES);

    private static final Set<String> NO_INDEX_OPTIONS =
            Set.of("v", "ns", "background", "dropDups", "unique", "prepareUnique", EXPIRES);
    private static final Set<String> FLAGS = Set.of("sparse", "hidden");
    /** What a modification of an index would do beyond {@code hidden}. */
    private static final Set<String> NO_INDEX_CHANGES = Set.of("unique", "prepareUnique", "forceNonUnique", EXPIRES);

    /** Also what {@code convertToCapped} is in the log. */
    private static final Set<String> NO_CHANGES =
            Set.of("cappedSize", "cappedMax", "capped", "size", "max", "recordPreImages", EXPIRES);

    private static final Map<String, BsonValue> DEFAULTS = Map.of(
            VALIDATOR,
            new BsonDocument(),
            "validationLevel",
            new BsonString("strict"),
            ACTION,
            ERROR,
            "changeStreamPreAndPostImages",
            new BsonDocument("enabled", BsonBoolean.FALSE));

    private Relaxed() {}

    /** Of a new collection. */
    static BsonDocument options(BsonDocument options) {
        BsonDocument relaxed = without(options, NO_OPTIONS);
        collate(relaxed);
        if (has(relaxed, VALIDATOR)) relaxed.put(ACTION, WARN);
        return relaxed;
    }

    /** Of a new index. Without a collation it would have that of its collection, and the source's has none. */
    static BsonDocument index(BsonDocument index) {
        BsonDocument relaxed = without(index, NO_INDEX_OPTIONS);
        collate(relaxed);
        if (!relaxed.containsKey(COLLATION)) relaxed.append(COLLATION, SIMPLE);
        return relaxed;
    }

    /**
     * The arguments of a {@code collMod}; empty when nothing is left.
     *
     * @param present the collection's options at the destination
     */
    static BsonDocument modification(BsonDocument arguments, BsonDocument present) {
        BsonDocument relaxed = without(arguments, NO_CHANGES);
        if (relaxed.isDocument("index")) {
            BsonDocument index = without(relaxed.getDocument("index"), NO_INDEX_CHANGES);
            boolean isSame = Set.of("name", "keyPattern").containsAll(index.keySet());
            if (isSame) relaxed.remove("index");
            else relaxed.put("index", index);
        }
        boolean validates = relaxed.containsKey(VALIDATOR) ? has(relaxed, VALIDATOR) : has(present, VALIDATOR);
        if (validates && (relaxed.containsKey(VALIDATOR) || relaxed.containsKey(ACTION))) relaxed.put(ACTION, WARN);
        else if (relaxed.containsKey(VALIDATOR) && !relaxed.containsKey(ACTION)) relaxed.put(ACTION, ERROR);
        return relaxed;
    }

    private static BsonDocument without(BsonDocument document, Set<String> names) {
        BsonDocument rest = new BsonDocument();
        document.forEach((name, value) -> {
            if (!names.contains(name)) rest.append(name, value);
        });
        return rest;
    }

    /** The version of a server's collation library is its own, and the simple collation counts as none. */
    private static void collate(BsonDocument relaxed) {
        if (!relaxed.isDocument(COLLATION)) return;
        BsonDocument collation = without(relaxed.getDocument(COLLATION), Set.of("version"));
        if (SIMPLE.get("locale").equals(collation.get("locale"))) relaxed.remove(COLLATION);
        else relaxed.put(COLLATION, collation);
    }

    /** The default collation of a collection with these options; null when it is the simple one. */
    static BsonDocument collation(BsonDocument options) {
        BsonDocument relaxed = new BsonDocument();
        if (options.isDocument(COLLATION)) relaxed.append(COLLATION, options.getDocument(COLLATION));
        collate(relaxed);
        return relaxed.isDocument(COLLATION) ? relaxed.getDocument(COLLATION) : null;
    }

    static BsonDocument withoutCollation(BsonDocument options) {
        return without(options, Set.of(COLLATION));
    }

    private static boolean has(BsonDocument options, String name) {
        return options.isDocument(name) && !options.getDocument(name).isEmpty();
    }

    /** The names of options that differ between two collections or views, once both are relaxed. */
    static List<String> unlike(BsonDocument options, BsonDocument others) {
        BsonDocument left = comparable(options(options));
        BsonDocument right = comparable(options(others));
        Set<String> names = new TreeSet<>(left.keySet());
        names.addAll(right.keySet());
        return names.stream()
                .filter(name -> !areSame(left.get(name), right.get(name)))
                .toList();
    }

    private static BsonDocument comparable(BsonDocument options) {
        if (options.isDocument("clusteredIndex"))
            options.put("clusteredIndex", without(options.getDocument("clusteredIndex"), Set.of("v")));
        if (options.isArray("pipeline") && options.getArray("pipeline").isEmpty()) options.remove("pipeline");
        options.entrySet()
                .removeIf(option -> DEFAULTS.containsKey(option.getKey())
                        && areSame(option.getValue(), DEFAULTS.get(option.getKey())));
        return options;
    }

    /** The value of an option that is absent; null where it has none. */
    static BsonValue standard(String option) {
        return DEFAULTS.get(option);
    }

    /** Whether two indexes are the same, once both are relaxed. */
    static boolean areAlike(BsonDocument index, BsonDocument other) {
        return areSame(comparableIndex(index), comparableIndex(other));
    }

    private static BsonDocument comparableIndex(BsonDocument index) {
        Map<String, BsonValue> fields = new TreeMap<>(index(index));
        fields.put("key", whole(index.getDocument("key")));
        if (fields.get("weights") instanceof BsonDocument weights) {
            BsonDocument sorted = new BsonDocument();
            new TreeMap<>(weights).forEach(sorted::append);
            fields.put("weights", whole(sorted));
        }
        BsonDocument comparable = new BsonDocument();
        fields.forEach((name, value) -> {
            boolean isUnset = FLAGS.contains(name) && isFalse(value);
            if (!isUnset) comparable.append(name, FLAGS.contains(name) ? BsonBoolean.TRUE : value);
        });
        return comparable;
    }

    private static boolean isFalse(BsonValue flag) {
        return flag.isBoolean()
                ? !flag.asBoolean().getValue()
                : flag.isNumber() && flag.asNumber().intValue() == 0;
    }

    /** With integral numbers of one type; others, and text, as they are. */
    private static BsonDocument whole(BsonDocument numbers) {
        BsonDocument whole = new BsonDocument();
        numbers.forEach((name, value) -> {
            boolean isWhole = value.isNumber() && value.asNumber().doubleValue() % 1 == 0;
            whole.append(name, isWhole ? new BsonInt64(value.asNumber().longValue()) : value);
        });
        return whole;
    }

    /** Also in the order of fields. */
    private static boolean areSame(BsonValue left, BsonValue right) {
        if (left == null || right == null) return left == right;
        return Arrays.equals(BsonBytes.of(new BsonDocument("", left)), BsonBytes.of(new BsonDocument("", right)));
    }
}
