package io.towpath.source.rules;

import io.towpath.record.JsonArrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.bson.BSONException;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.json.JsonMode;
import org.bson.json.JsonParseException;
import org.bson.json.JsonWriterSettings;

/** What of documents may leave the source: the rules of a connector, or those that the log's records follow. */
public final class Rules {
    /** Everything leaves. */
    public static final Rules NONE = new Rules(new BsonArray(), "", null);

    private static final String KEY = "key";
    private static final String LIST = "rules";
    private static final String ONLY = "only";
    private static final JsonWriterSettings CANONICAL =
            JsonWriterSettings.builder().outputMode(JsonMode.EXTENDED).build();

    /** @param only which documents leave; null for all */
    private record Rule(Predicate<String> collections, Map<String, Action> paths, BsonDocument only) {}

    private final BsonArray list;
    /** Empty without a key. */
    private final String keyId;
    /** Null without a key. */
    private final KeyedHash hash;

    private final List<Rule> rules;
    private final Map<String, Mask> masks = new HashMap<>();
    private final Map<String, Optional<Selection>> selections = new ConcurrentHashMap<>();

    private Rules(BsonArray list, String keyId, KeyedHash hash) {
        this.list = list;
        this.keyId = keyId;
        this.hash = hash;
        this.rules = list.stream().map(Rules::rule).toList();
    }

    /**
     * The rules of a connector. Throws {@link IllegalArgumentException} for what is not in their form.
     *
     * @param json as in docs/design/rules.md; empty for none
     * @param key in hexadecimal digits; empty for none
     */
    public static Rules of(String json, String key) {
        if (json.isEmpty()) return NONE;
        KeyedHash hash = key.isEmpty() ? null : new KeyedHash(HexFormat.of().parseHex(key));
        Rules rules;
        try {
            rules = new Rules(JsonArrays.parse(json), hash == null ? "" : hash.id(), hash);
        } catch (BSONException | JsonParseException | PatternSyntaxException error) {
            throw new IllegalArgumentException(error.getMessage(), error);
        }
        boolean isHashing = rules.rules.stream().anyMatch(rule -> rule.paths.containsValue(Action.HASH));
        if (isHashing && hash == null) throw new IllegalArgumentException("rules that hash need a key");
        return rules;
    }

    /** Those of a {@link #text}. They only compare: without the key they cannot be applied. */
    public static Rules stored(String text) {
        if (text.isEmpty()) return NONE;
        BsonDocument stored = BsonDocument.parse(text);
        return new Rules(stored.getArray(LIST), stored.getString(KEY).getValue(), null);
    }

    /** All that tells rules apart, without the key. */
    public String text() {
        if (rules.isEmpty()) return "";
        return new BsonDocument(KEY, new BsonString(keyId)).append(LIST, list).toJson(CANONICAL);
    }

    private static Rule rule(BsonValue value) {
        BsonDocument rule = value.asDocument();
        Map<String, Action> paths = new HashMap<>();
        for (BsonValue path : rule.getArray("hash", new BsonArray())) paths.put(text(path), Action.HASH);
        rule.getDocument("set", new BsonDocument()).forEach((path, constant) -> paths.put(path, Action.set(constant)));
        for (BsonValue path : rule.getArray("drop", new BsonArray())) paths.put(text(path), Action.DROP);
        String collections = rule.getString("collections").getValue();
        return new Rule(Pattern.compile(collections).asMatchPredicate(), paths, rule.getDocument(ONLY, null));
    }

    private static String text(BsonValue value) {
        return value.asString().getValue();
    }

    /** What applies them to the documents of a collection. */
    public Mask of(String namespace) {
        return rules.isEmpty() ? Mask.NONE : masks.computeIfAbsent(namespace, this::mask);
    }

    private Mask mask(String namespace) {
        Place document = Place.ofDocument();
        paths(namespace).entrySet().stream()
                .map(path -> Map.entry(Place.segments(path.getKey()), path.getValue()))
                .sorted(Comparator.comparingInt(path -> path.getKey().size()))
                .forEach(path -> document.name(path.getKey(), path.getValue()));
        return new Mask(document, hash);
    }

    /** Those of several rules for one collection are other paths. */
    private Map<String, Action> paths(String namespace) {
        Map<String, Action> paths = new TreeMap<>();
        for (Rule rule : rules) if (rule.collections.test(namespace)) paths.putAll(rule.paths);
        return paths;
    }

    /** Which documents of a collection leave; empty if all do. For several threads. */
    public Optional<Selection> only(String namespace) {
        return rules.isEmpty() ? Optional.empty() : selections.computeIfAbsent(namespace, this::selection);
    }

    private Optional<Selection> selection(String namespace) {
        List<BsonDocument> filters = rules.stream()
                .filter(rule -> rule.collections.test(namespace))
                .map(Rule::only)
                .filter(Objects::nonNull)
                .toList();
        return filters.isEmpty() ? Optional.empty() : Optional.of(new Selection(filters));
    }

    /** Whether both leave the same of the documents of a collection. */
    public boolean leaveTheSame(Rules other, String namespace) {
        return effect(namespace).equals(other.effect(namespace));
    }

    /** Whether the same documents of two collections leave. */
    public boolean selectAlike(String namespace, String other) {
        return only(namespace).map(Selection::filter).equals(only(other).map(Selection::filter));
    }

    private String effect(String namespace) {
        Map<String, Action> paths = paths(namespace);
        String fields = paths.containsValue(Action.HASH) ? keyId + paths : paths.toString();
        return fields
                + only(namespace).map(only -> only.filter().toJson(CANONICAL)).orElse("");
    }
}
