package io.towpath.source.rules;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.towpath.fold.Histories;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import io.towpath.support.LogModel;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class MaskTest {
    private static final String KEY = "000102030405060708090a0b0c0d0e0f";

    private static Mask mask(String rule) {
        String json = "["
                + BsonDocument.parse(rule)
                        .append("collections", new BsonString("s\\.c"))
                        .toJson() + "]";
        return Rules.of(json, KEY).of("s.c");
    }

    private static byte[] bytes(String json) {
        return BsonBytes.of(BsonDocument.parse(json));
    }

    private static String json(byte[] bytes) {
        return bytes == null
                ? ""
                : new RawBsonDocument(bytes)
                        .decode(new org.bson.codecs.BsonDocumentCodec())
                        .toJson();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '~',
            value = {
                // a rule | a document | what is left
                "{drop: ['a']} | {_id: 1, a: 2, b: 3} | {_id: 1, b: 3}",
                "{drop: ['a.b']} | {_id: 1, a: {b: 2, c: 3}} | {_id: 1, a: {c: 3}}",
                "{drop: ['a.b']} | {_id: 1, a: [{b: 2, c: 3}, 4, [{b: 5}]]} | {_id: 1, a: [{c: 3}, 4, [{}]]}",
                "{drop: ['a.b']} | {_id: 1, a: {'7': {b: 2}, b: 3}} | {_id: 1, a: {'7': {}}}",
                "{drop: ['a.b']} | {_id: 1, '5': {a: {b: 2}}} | {_id: 1, '5': {a: {}}}",
                "{drop: ['a.b']} | {_id: 1, 'a.b': 2, 'a.0.b': 3, 'a.bc': 4} | {_id: 1, 'a.bc': 4}",
                "{drop: ['a.b.c']} | {_id: 1, 'a.b': {c: 2, d: 3}} | {_id: 1, 'a.b': {d: 3}}",
                "{drop: ['a']} | {_id: {a: 1}, b: {a: 1}} | {_id: {a: 1}, b: {a: 1}}",
                "{drop: ['a.b']} | {_id: 1, a: {'': {b: 2}}, 'a..b': 3} | {_id: 1, a: {'': {b: 2}}, 'a..b': 3}",
                "{drop: ['a.b', 'a']} | {_id: 1, a: {b: 2}, c: 3} | {_id: 1, c: 3}",
                "{set: {a: 'x'}} | {_id: 1, a: 2, b: null} | {_id: 1, a: 'x', b: null}",
                "{set: {a: 'x'}} | {_id: 1, a: [1, null, {b: true, c: []}], b: 1} | {_id: 1, a: ['x', null, {b: 'x', c: []}], b: 1}",
                "{set: {a: 5}, drop: ['a.b']} | {_id: 1, a: {b: 1, c: 2}} | {_id: 1, a: {c: 5}}",
                "{set: {a: 5, 'a.b': 6, 'a.b.c': 7}} | {_id: 1, a: {b: {c: 1, d: 2}, e: 3}} | {_id: 1, a: {b: {c: 7, d: 6}, e: 5}}",
                "{set: {a: true}, drop: ['a']} | {_id: 1, a: 1} | {_id: 1}",
                "{hash: ['a']} | {_id: 1, a: null, b: 2} | {_id: 1, a: null, b: 2}",
            })
    void documents(String rule, String document, String left) {
        assertEquals(json(bytes(left)), json(mask(rule).ofDocument(bytes(document))));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '~',
            value = {
                // a rule | an update | what is left; nothing for no record
                "{drop: ['a']} | {$set: {a: 1, b: 2}} | {$set: {b: 2}}",
                "{drop: ['a']} | {$set: {'a.b.c': 1}} | ",
                "{drop: ['a']} | {$set: {a: 1}, $unset: {'a.b': ''}, $truncate: {a: 3}} | ",
                "{drop: ['a.b']} | {$set: {'a.3.b': 1, 'a.3.c': 2, 'a.4': {b: 3, c: 4}}} | {$set: {'a.3.c': 2, 'a.4': {c: 4}}}",
                "{drop: ['a.b']} | {$set: {'a': [{b: 1, c: 2}]}, $unset: {'c': '', 'a.7.b': ''}} | {$set: {a: [{c: 2}]}, $unset: {c: ''}}",
                "{drop: ['a.b']} | {$unset: {'a.1.b.c': ''}, $truncate: {'a.b': 1, 'a': 2}} | {$truncate: {a: 2}}",
                "{set: {a: 'x'}} | {$set: {'a.0': 1, b: 2}, $unset: {'a.c': ''}, $truncate: {'a.d': 4}} | {$set: {'a.0': 'x', b: 2}, $unset: {'a.c': ''}, $truncate: {'a.d': 4}}",
                "{drop: ['z']} | {$set: {a: 1}, $truncate: {b: 1}} | {$set: {a: 1}, $truncate: {b: 1}}",
            })
    void updates(String rule, String update, String left) {
        assertEquals(left == null ? "" : json(bytes(left)), json(mask(rule).ofUpdate(bytes(update))));
    }

    /** A client that writes BSON itself can give the elements of an array any names. */
    @Test
    void namesOfElementsCountForNothing() {
        byte[] document = bytes("{a: {x: {b: 1, c: 2}, b: 3}}");
        document[4] = BsonElements.ARRAY;
        byte[] left = mask("{drop: ['a.b'], set: {'a.c': 7}}").ofDocument(document);
        byte[] expected = bytes("{a: {x: {c: 7}, b: 3}}");
        expected[4] = BsonElements.ARRAY;
        assertArrayEquals(expected, left);
    }

    @Test
    void whatNoRuleNamesIsNotCopied() {
        byte[] document = bytes("{_id: 1, a: {c: 1}, d: [{b: 1}]}");
        assertSame(document, mask("{drop: ['a.b', 'x']}").ofDocument(document));
        byte[] update = bytes("{$set: {'a.c': 1}, $unset: {d: ''}}");
        assertSame(update, mask("{drop: ['a.b', 'x']}").ofUpdate(update));
        assertSame(document, Rules.NONE.of("s.c").ofDocument(document));
    }

    @Test
    void aPlaceWithinItDoesNotSaveWhatIsDropped() {
        assertNull(mask("{drop: ['a'], set: {'a.b': 1}}").ofUpdate(bytes("{$set: {'a.b': 5}}")));
    }

    /** The values are HMAC-SHA-256, as other tools compute it, of the type byte and the bytes. */
    @Test
    void hashes() {
        byte[] left = mask("{hash: ['a']}").ofDocument(bytes("{_id: 1, a: 'text'}"));
        assertEquals("{\"_id\": 1, \"a\": \"%s\"}".formatted(HASH_OF_TEXT), json(left));
    }

    private static final String HASH_OF_TEXT = "d7ee8117b1926a448d970defa0f044a1";

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '~',
            value = {
                "5 | {$numberLong: '5'}",
                "5 | 5.0",
                "5 | {$numberDecimal: '5.00'}",
                "0.5 | {$numberDecimal: '0.50'}",
                "0 | -0.0",
                "{$numberDouble: 'NaN'} | {$numberDecimal: 'NaN'}",
                "'a' | {$symbol: 'a'}",
            })
    void equalValuesHaveOneHash(String one, String other) {
        Mask mask = mask("{hash: ['a']}");
        assertArrayEquals(
                mask.ofDocument(bytes("{a: %s}".formatted(one))), mask.ofDocument(bytes("{a: %s}".formatted(other))));
    }

    @Test
    void anotherKeyGivesOtherHashes() {
        String rules = "[{collections: '.*', hash: ['a']}]";
        byte[] document = bytes("{a: 1}");
        Rules one = Rules.of(rules, KEY);
        Rules other = Rules.of(rules, "00" + KEY);
        assertNotEquals(
                json(one.of("s.c").ofDocument(document)), json(other.of("s.c").ofDocument(document)));
        assertEquals(false, one.leaveTheSame(other, "s.c"));
        assertEquals(false, one.text().contains(KEY));
    }

    /** What `verify` compares with: the same in Python. Where the tests of Python start this, with random cases of theirs. */
    @Test
    void javaAndPythonLeaveTheSame() throws IOException {
        leaveTheSame(Path.of("../tests/verifier/masks.json"));
        String others = System.getenv("TOWPATH_TEST_MASKS");
        if (others != null) leaveTheSame(Path.of(others));
    }

    private static void leaveTheSame(Path masks) throws IOException {
        BsonDocument file = BsonDocument.parse(Files.readString(masks));
        String key = file.getString("key").getValue();
        for (BsonValue each : file.getArray("cases")) {
            BsonDocument one = each.asDocument();
            String rule = one.getString("rule").getValue();
            byte[] left = Rules.of(rule, key).of("s.c").ofDocument(decoded(one, "document"));
            assertArrayEquals(decoded(one, "left"), left, () -> rule + json(decoded(one, "document")));
        }
    }

    private static byte[] decoded(BsonDocument one, String name) {
        return Base64.getDecoder().decode(one.getString(name).getValue());
    }

    @Provide
    Arbitrary<List<Histories.Attempt>> attempts() {
        return Histories.attempts();
    }

    @Test
    void filtersAreThoseOfAllRulesThatMatchAndAreStoredExactly() {
        String one =
                "{collections: 's\\\\..*', only: {a: {$type: 2, $gt: {$numberLong: '5'}}, b: {$regularExpression: {pattern: 'x', options: 'i'}}}}";
        String other = "{collections: 's\\\\.c', only: {c: null}}";
        Rules rules = Rules.of("[%s, %s]".formatted(one, other), "");
        BsonDocument filter = rules.only("s.c").orElseThrow().filter();

        assertEquals(
                BsonDocument.parse(one).get("only"), filter.getArray("$and").get(0));
        assertEquals(BsonDocument.parse("{c: null}"), filter.getArray("$and").get(1));
        assertEquals(
                1, rules.only("s.d").orElseThrow().filter().getArray("$and").size());
        assertEquals(true, rules.only("t.c").isEmpty());
        Rules stored = Rules.stored(rules.text());
        assertEquals(rules.text(), stored.text());
        for (String namespace : List.of("s.c", "s.d", "t.c")) assertEquals(true, rules.leaveTheSame(stored, namespace));
        String others = one.replace("{$numberLong: '5'}", "5");
        assertEquals(
                false, Rules.of("[%s]".formatted(others), "").leaveTheSame(rules, "s.d"), "an int is another type");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = ';',
            value = {
                "{a: 1};                     {$set: {a: 2}};                   true",
                "{a: 1};                     {$set: {b: 2}};                   false",
                "{a: 1};                     {$set: {'b.a': 2}};               false",
                "{a: 1};                     {$unset: {a: ''}};                true",
                "{a: 1};                     {$set: {'a.b.c': 2}};             true",
                "{'a.b': 1};                 {$set: {a: {c: 1}}};              true",
                "{'a.b': 1};                 {$set: {'a.c': 1}};               false",
                "{'a.b': 1};                 {$set: {'a.3.b': 1}};             true",
                "{'a.0.b': 1};               {$set: {'a.3': 1}};               true",
                "{'a.0.b': 1};               {$set: {'a.3.c': 1}};             false",
                "{a: {$size: 3}};            {$truncate: {a: 2}};              true",
                "{$or: [{a: 1}, {b: 1}]};    {$set: {b: 2}};                   true",
                "{$nor: [{a: 1}]};           {$set: {b: 2}};                   false",
                "{$expr: {$gt: ['$a', 1]}};  {$set: {b: 2}};                   true",
                "{$jsonSchema: {}};          {$set: {b: 2}};                   true",
                "{a: 1, $comment: 'b'};      {$set: {b: 2}};                   false",
                "{'0': 1};                   {$set: {b: 2}};                   true",
                "{'a.b': 1, a: {$size: 2}};  {$set: {'a.0.c': 2}};             true",
                "{a: {$size: 2}, 'a.b': 1};  {$set: {'a.0.c': 2}};             true",
                "{$or: [{'a.b.c': 1}, {$and: [{'a.b': 2}]}]}; {$set: {'a.b.d': 2}}; true",
                "{$or: [{'a.b.c': 1}, {$and: [{'a.b': 2}]}]}; {$set: {'a.c': 2}};   false",
            })
    void updatesThatMayChangeWhetherADocumentIsSelected(String filter, String update, boolean may) {
        Rules rules = Rules.of("[{collections: 's.c', only: %s}]".formatted(filter), "");
        assertEquals(may, rules.only("s.c").orElseThrow().dependsOn(bytes(update)));
    }

    @Provide
    Arbitrary<String> rules() {
        Arbitrary<String> path = Arbitraries.of("a", "l", "b", "z", "m", "\u00e9")
                .list()
                .ofMinSize(1)
                .ofMaxSize(3)
                .map(names -> String.join(".", names));
        Arbitrary<String> action = Arbitraries.of("drop", "hash", "set");
        return Combinators.combine(path, action)
                .as(Map::entry)
                .list()
                .ofMinSize(1)
                .ofMaxSize(4)
                .map(MaskTest::rule);
    }

    private static String rule(List<Map.Entry<String, String>> actions) {
        Map<String, String> byPath = new TreeMap<>();
        actions.forEach(each -> byPath.put(each.getKey(), each.getValue()));
        BsonDocument rule = new BsonDocument("drop", new BsonArray())
                .append("hash", new BsonArray())
                .append("set", new BsonDocument());
        byPath.forEach((path, action) -> {
            if (action.equals("set")) rule.getDocument("set").append(path, new BsonString("constant"));
            else rule.getArray(action).add(new BsonString(path));
        });
        return rule.toJson();
    }

    /** What is left of an update changes what is left of a document as the update changes the document. */
    @Property
    void aChangeAndTheRulesCommute(@ForAll("attempts") List<Histories.Attempt> attempts, @ForAll("rules") String rule) {
        Mask mask = mask(rule);
        LogModel source = new LogModel();
        LogModel log = new LogModel();
        source.apply(Histories.first());
        log.apply(mask.ofDocument(Histories.first()));
        for (byte[] value : Histories.values(attempts, false)) {
            source.apply(value);
            byte[] left = left(mask, value, source);
            if (left != null || value == null) log.apply(left);
            if (source.bytes() == null) continue;
            assertEquals(json(mask.ofDocument(source.bytes())), json(log.bytes()), () -> rule);
            assertArrayEquals(mask.ofDocument(source.bytes()), log.bytes());
        }
    }

    /** What the log gets of a value; an array is sent whole where the value has a splice, which the rules never see. */
    private static byte[] left(Mask mask, byte[] value, LogModel source) {
        Change change = Change.decode(value);
        if (change instanceof Change.Delete) return null;
        if (change instanceof Change.Document) return mask.ofDocument(value);
        Change.Update update = (Change.Update) change;
        BsonDocument set = new BsonDocument();
        set.putAll(update.set());
        update.splices().forEach(splice -> set.put(splice.path(), source.at(splice.path())));
        return mask.ofUpdate(new Change.Update(set, update.unset(), update.truncations()).encode());
    }
}
