package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CreateCollectionOptions;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RandomIds;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranges of a real collection: together they hold every document once, whatever its {@code _id}, and wherever a read broke off. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class RangesServerTest {
    private final Server server = new Server();
    private SourceCluster source;

    @BeforeEach
    void connect() {
        source = Sources.connected(Sources.configuration());
    }

    @AfterEach
    void close() {
        source.close();
        server.close();
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4, 5, 6, 7, 8})
    void rangesOfMixedIdsHoldEveryDocumentOnce(long seed) {
        MongoCollection<RawBsonDocument> collection = server.fresh("ranges" + seed);
        RandomIds ids = new RandomIds(seed);
        Server.insert(
                collection,
                Stream.generate(() -> new RawBsonDocument(ids.document()))
                        .limit(3000)
                        .toList());

        RangePlan plan =
                RangeCutter.plan(source.collection(collection.getNamespace().getFullName()), 2_000);

        assertTrue(plan.ranges() > 10, "too few ranges: " + plan.ranges());
        assertEquals(stored(collection), copied(collection, plan, new Random(seed)));
    }

    @Test
    void theOrderOfACollationIsUnknownSoOneRangeHasAll() {
        MongoCollection<RawBsonDocument> collection = server.fresh("collated");
        String name = collection.getNamespace().getFullName();
        Map<String, String> settings = Map.of("towpath.copy.range.bytes", "1000");
        CopySettings parsed = CopySettings.of(new AbstractConfig(CopySettings.define(new ConfigDef()), settings));
        for (String locale : List.of("simple", "en")) {
            collection.drop();
            server.client()
                    .getDatabase(collection.getNamespace().getDatabaseName())
                    .createCollection(
                            "collated",
                            new CreateCollectionOptions()
                                    .collation(
                                            Collation.builder().locale(locale).build()));
            Server.insert(
                    collection,
                    Stream.iterate(0, id -> id + 1)
                            .limit(100)
                            .map(id -> new RawBsonDocument(BsonBytes.of(new BsonDocument("_id", new BsonInt32(id)))))
                            .toList());
            int ranges =
                    new SnapshotReads(source, parsed, Rules.NONE).plan(name).ranges();
            assertEquals(locale.equals("en"), ranges == 1, locale + ": " + ranges);
        }
    }

    @Test
    void aLargeCollectionIsCutByASample() {
        MongoCollection<RawBsonDocument> collection = server.fresh("sampled");
        Server.insert(collection, ids("{_id: %d, pad: '0123456789'}", 30_000));

        RangePlan plan =
                RangeCutter.plan(source.collection(collection.getNamespace().getFullName()), 100_000);
        List<Integer> sizes = sizes(collection, plan);

        assertTrue(plan.ranges() >= 8, "too few ranges: " + plan.ranges());
        assertEquals(30_000, sizes.stream().mapToInt(Integer::intValue).sum());
        // The server may take a page that it has not yet split for one of many: then a range is much larger.
        int usual = sizes.stream().sorted().toList().get(sizes.size() / 2);
        long alike = sizes.stream()
                .filter(size -> size > usual / 4 && size < usual * 4)
                .count();
        assertTrue(alike * 4 >= plan.ranges() * 3L, "ranges are not alike: " + sizes);
    }

    @Test
    void aCollectionThatIsClusteredByItsIdsIsReadInRanges() {
        MongoCollection<RawBsonDocument> collection = server.fresh("clustered");
        server.run("{create: 'clustered', clusteredIndex: {key: {_id: 1}, unique: true}}");
        Server.insert(collection, ids("{_id: 'k%05d'}", 2000));

        RangePlan plan =
                RangeCutter.plan(source.collection(collection.getNamespace().getFullName()), 10_000);

        assertTrue(plan.ranges() > 2, "too few ranges: " + plan.ranges());
        assertEquals(stored(collection), copied(collection, plan, new Random(1)));
    }

    @Test
    void aMissingCollectionIsOneEmptyRange() {
        MongoCollection<RawBsonDocument> collection = server.fresh("missing");
        RangePlan plan =
                RangeCutter.plan(source.collection(collection.getNamespace().getFullName()), 10_000);

        assertEquals(1, plan.ranges());
        assertEquals(List.of(), copied(collection, plan, new Random(1)));
    }

    private static List<RawBsonDocument> ids(String json, int count) {
        List<RawBsonDocument> documents = new ArrayList<>();
        for (int i = 0; i < count; i++) documents.add(RawBsonDocument.parse(json.formatted(i)));
        return documents;
    }

    private List<String> stored(MongoCollection<RawBsonDocument> collection) {
        List<String> documents = new ArrayList<>();
        collection
                .find()
                .sort(new org.bson.BsonDocument("_id", new org.bson.BsonInt32(1)))
                .forEach(document -> documents.add(HexFormat.of().formatHex(BsonBytes.of(document))));
        return documents;
    }

    private List<Integer> sizes(MongoCollection<RawBsonDocument> collection, RangePlan plan) {
        List<Integer> sizes = new ArrayList<>();
        for (int range = 0; range < plan.ranges(); range++) {
            int size = 0;
            try (RangeRead pages = read(collection, plan, range, RangePlan.OPEN_END)) {
                while (pages.hasNext()) size += pages.next().documents().size();
            }
            sizes.add(size);
        }
        return sizes;
    }

    /** Reads every range page by page, breaking off at random and going on in another session. */
    private List<String> copied(MongoCollection<RawBsonDocument> collection, RangePlan plan, Random random) {
        List<String> documents = new ArrayList<>();
        for (int range = 0; range < plan.ranges(); range++) {
            byte[] after = RangePlan.OPEN_END;
            for (boolean over = false; !over; ) {
                try (RangeRead pages = read(collection, plan, range, after)) {
                    do {
                        Page page = pages.next();
                        page.documents()
                                .forEach(
                                        document -> documents.add(HexFormat.of().formatHex(document)));
                        over = page.isLast();
                        int each = range;
                        page.documents()
                                .forEach(document -> assertEquals(each, plan.rangeOf(CanonicalKey.of(document))));
                        if (!over) after = page.upTo();
                    } while (!over && random.nextBoolean());
                }
            }
        }
        return documents;
    }

    private RangeRead read(MongoCollection<RawBsonDocument> collection, RangePlan plan, int range, byte[] after) {
        String namespace = collection.getNamespace().getFullName();
        return new RangeRead(
                Sources.reads(source),
                source.snapshot(),
                new RangeRead.Range(namespace, plan, range, after),
                new PageRead.Size(4_000, 300),
                new ClusterTime(0, 0));
    }
}
