package io.towpath.sink.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import java.util.List;
import java.util.Map;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

class RelaxedTest {
    private static BsonDocument parse(String json) {
        return BsonDocument.parse(json);
    }

    @Test
    void aCollectionHasNoLimitsAndAValidatorThatOnlyWarns() {
        BsonDocument options = parse(
                "{capped: true, size: 9, max: 1, validator: {x: 1}, validationAction: 'error', collation: {locale: 'de', version: '57.1'},"
                        + " idIndex: {key: {_id: 1}}, clusteredIndex: {key: {_id: 1}}, expireAfterSeconds: 5}");
        assertEquals(
                parse(
                        "{validator: {x: 1}, validationAction: 'warn', collation: {locale: 'de'}, clusteredIndex: {key: {_id: 1}}}"),
                Relaxed.options(options));
        assertEquals(parse("{validator: {}}"), Relaxed.options(parse("{validator: {}}")));
    }

    @Test
    void anIndexRejectsAndDeletesNothing() {
        assertEquals(
                parse("{key: {x: 1}, name: 'x', sparse: true, collation: {locale: 'simple'}}"),
                Relaxed.index(
                        parse(
                                "{v: 2, key: {x: 1}, name: 'x', unique: true, sparse: true, expireAfterSeconds: 1, prepareUnique: true}")));
        assertEquals(
                parse("{key: {x: 1}, name: 'x', collation: {locale: 'de'}}"),
                Relaxed.index(parse("{key: {x: 1}, name: 'x', collation: {locale: 'de', version: '1'}}")));
    }

    @Test
    void aModificationKeepsWhatIsHarmless() {
        BsonDocument none = new BsonDocument();
        BsonDocument validated = parse("{validator: {x: 1}, validationAction: 'warn'}");
        assertEquals(
                none, Relaxed.modification(parse("{cappedSize: 1, cappedMax: 1, expireAfterSeconds: 'off'}"), none));
        assertEquals(none, Relaxed.modification(parse("{capped: true, size: 10000, max: 5}"), none), "convertToCapped");
        assertEquals(
                none, Relaxed.modification(parse("{index: {name: 'x', unique: true, expireAfterSeconds: 5}}"), none));
        assertEquals(
                parse("{index: {name: 'x', hidden: true}}"),
                Relaxed.modification(parse("{index: {name: 'x', hidden: true, expireAfterSeconds: 5}}"), none));
        assertEquals(
                parse("{validator: {y: 1}, validationAction: 'warn'}"),
                Relaxed.modification(parse("{validator: {y: 1}, validationAction: 'error'}"), none));
        assertEquals(
                parse("{validationAction: 'warn'}"),
                Relaxed.modification(parse("{validationAction: 'error'}"), validated));
        assertEquals(
                parse("{validationAction: 'error'}"), Relaxed.modification(parse("{validationAction: 'error'}"), none));
        assertEquals(
                parse("{validator: {}, validationAction: 'error'}"),
                Relaxed.modification(parse("{validator: {}}"), validated));
        assertEquals(
                parse("{validationLevel: 'off'}"), Relaxed.modification(parse("{validationLevel: 'off'}"), validated));
    }

    @Test
    void defaultsAndWhatTheServerAddsAreNoDifference() {
        assertEquals(
                List.of(),
                Relaxed.unlike(
                        parse("{validator: {x: 1}, validationLevel: 'strict', capped: true, size: 5}"),
                        parse("{validationAction: 'warn', validator: {x: 1}, uuid: 1}")));
        assertEquals(
                List.of("validator"),
                Relaxed.unlike(parse("{validator: {a: 1, b: 1}}"), parse("{validator: {b: 1, a: 1}}")));
        assertEquals(
                List.of("collation", "validator"),
                Relaxed.unlike(
                                parse("{collation: {locale: 'de'}}"),
                                parse("{validator: {x: 1}, validationAction: 'error'}"))
                        .stream()
                        .filter(name -> !name.equals("validationAction"))
                        .toList());
    }

    @Test
    void indexesAreAlikeWhateverTheirNumbersAndLimits() {
        assertTrue(Relaxed.areAlike(
                parse("{v: 2, key: {x: 1.0, y: -1}, name: 'x', unique: true, hidden: false}"),
                parse("{key: {x: 1, y: {$numberLong: '-1'}}, name: 'x', collation: {locale: 'simple'}}")));
        assertTrue(Relaxed.areAlike(
                parse("{key: {x: 'text'}, name: 'x', weights: {a: 1, b: 2}}"),
                parse("{key: {x: 'text'}, weights: {b: 2.0, a: 1}, name: 'x'}")));
        assertFalse(Relaxed.areAlike(
                parse("{key: {x: 'text'}, name: 'x', weights: {a: 1}}"),
                parse("{key: {x: 'text'}, name: 'x', weights: {a: 2}}")));
        assertFalse(Relaxed.areAlike(parse("{key: {x: 1, y: 1}, name: 'x'}"), parse("{key: {y: 1, x: 1}, name: 'x'}")));
        assertFalse(
                Relaxed.areAlike(parse("{key: {x: 1}, name: 'x'}"), parse("{key: {x: 1}, name: 'x', sparse: true}")));
    }

    @Test
    void aViewHasTheDestinationsNames() {
        Names names = new Names(Map.of(
                "shop.orders", new MongoNamespace("archive.old"),
                "shop.items", new MongoNamespace("other.items"),
                "shop.v", new MongoNamespace("archive.v")));
        BsonDocument view = parse(
                "{viewOn: 'orders', collation: {locale: 'de'}, pipeline: [{$lookup: {from: 'orders', as: 'o', pipeline: [{$unionWith: 'orders'}]}},"
                        + " {$unionWith: {coll: 'items'}}, {$match: {from: 'orders'}}]}");
        assertEquals(
                parse(
                        "{viewOn: 'old', collation: {locale: 'de'}, pipeline: [{$lookup: {from: 'old', as: 'o', pipeline: [{$unionWith: 'old'}]}},"
                                + " {$unionWith: {coll: 'items'}}, {$match: {from: 'orders'}}]}"),
                names.view(view, "shop.v"));
        assertEquals("shop.w", names.of("shop.w").getFullName());
    }
}
