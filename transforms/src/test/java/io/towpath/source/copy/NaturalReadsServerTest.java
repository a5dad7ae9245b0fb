package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoException;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import io.towpath.record.RandomIds;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.function.LongFunction;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.bson.Document;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Copies in natural order of a real collection: which collections, and that no document is missing wherever a read broke off. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class NaturalReadsServerTest {
    private static final int COUNT = 21_000;
    private static final String PAD = "x".repeat(1_000);
    private static final PageRead.Size PAGE = new PageRead.Size(4_000, 10_000);
    private static final ClusterTime ANY = new ClusterTime(0, 0);
    private static final long RANGE_BYTES = 100_000;

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

    @Test
    @Tag("nightly")
    void onlyAScatteredCollectionThatIsLargerThanTheCacheIsReadInNaturalOrder() {
        Random random = new Random(1);
        String scattered = filled("scattered", COUNT, id -> "{$numberLong: '%d'}".formatted(random.nextLong()));
        String rising = filled("rising", COUNT, id -> "{$numberLong: '%d'}".formatted(id));
        String falling = filled("falling", COUNT, id -> "{$numberLong: '%d'}".formatted(-id));
        String small = filled("small", 3_000, id -> "{$numberLong: '%d'}".formatted(random.nextLong()));
        assertTrue(plan(scattered, "auto").isEmpty(), "it fits the cache");
        server.onAdmin("{setParameter: 1, wiredTigerEngineRuntimeConfig: 'cache_size=32M'}");
        try {
            RangePlan plan = plan(scattered, "auto").orElseThrow();
            assertTrue(plan.ranges() >= 2, () -> "too few pieces: " + plan.ranges());
            assertTrue(plan(rising, "auto").isEmpty());
            try (NaturalReads natural = natural("auto", RANGE_BYTES)) {
                int ranges = natural.plan(rising).ranges();
                assertTrue(ranges >= 2, () -> "too few ranges of _ids: " + ranges);
            }
            assertTrue(plan(falling, "auto").isEmpty());
            assertTrue(plan(small, "auto").isEmpty());
            assertTrue(plan(scattered, "id").isEmpty());
            assertTrue(plan(rising, "natural").isPresent());
        } finally {
            server.onAdmin("{setParameter: 1, wiredTigerEngineRuntimeConfig: 'cache_size=512M'}");
        }
    }

    @Test
    void aThreadThatOutlivesTheCopyOpensNoClient() {
        String namespace = filled("outlived", 100, id -> "{$numberLong: '%d'}".formatted(id));
        NaturalReads natural = natural("natural", RANGE_BYTES);
        natural.close();
        MongoException ended = assertThrows(MongoException.class, () -> natural.plan(namespace));
        assertTrue(ReadFault.isInterrupt(ended), "which ends the thread as an interrupt does");
    }

    @Test
    void aCollectionWithoutIntegersForRecordIdsIsReadByItsIds() {
        MongoCollection<RawBsonDocument> collection = server.fresh("clustered");
        server.run("{create: 'clustered', clusteredIndex: {key: {_id: 1}, unique: true}}");
        collection.insertMany(List.of(RawBsonDocument.parse("{_id: 2}"), RawBsonDocument.parse("{_id: 1}")));
        assertTrue(plan(namespace(collection), "natural").isEmpty());
        assertTrue(plan("transforms.missing", "natural").isEmpty());
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void piecesHoldEveryDocumentWhereverAReadBrokeOff(long seed) {
        MongoCollection<RawBsonDocument> collection = server.fresh("pieces" + seed);
        RandomIds ids = new RandomIds(seed);
        Server.insert(
                collection,
                Stream.generate(() -> new RawBsonDocument(ids.document()))
                        .limit(5_000)
                        .toList());
        collection.deleteMany(Filters.expr(Document.parse("{$lt: [{$rand: {}}, 0.3]}")));
        String namespace = namespace(collection);
        RangePlan plan = plan(namespace, "natural", 2_000).orElseThrow();
        Set<String> stored = stored(collection);
        // what was deleted or changed after the plan's time is read as it was then
        collection.deleteMany(Filters.expr(Document.parse("{$lt: [{$rand: {}}, 0.5]}")));
        collection.updateMany(Filters.empty(), Updates.set("changed", 1));

        List<String> copied = copied(namespace, plan, new Random(seed));

        assertTrue(plan.ranges() > 10, "too few pieces: " + plan.ranges());
        assertEquals(stored, new HashSet<>(copied));
        assertEquals(stored.size(), copied.size(), "each is read once");
    }

    @Test
    @Tag("nightly")
    void aReadContinuesWhereItsRecordAndTheBoundsAreGone() {
        MongoCollection<RawBsonDocument> collection = server.fresh("gone");
        fill(collection, 5_000, Long::toString);
        RangePlan plan = plan(namespace(collection), "natural").orElseThrow();
        List<String> copied = new ArrayList<>();
        List<byte[]> positions = new ArrayList<>();
        try (NaturalReads natural = natural("natural", RANGE_BYTES)) {
            for (int range = 0; range < plan.ranges(); range++) {
                RangeRead.Range piece = new RangeRead.Range(namespace(collection), plan, range, RangePlan.OPEN_END);
                try (PageRead pages = natural.read(piece, PAGE)) {
                    Page page = pages.next();
                    assertEquals(plan.recordIds().orElseThrow().time(), page.time());
                    page.documents().forEach(document -> copied.add(hex(document)));
                    positions.add(page.upTo());
                }
            }
            collection.deleteMany(Filters.and(Filters.gte("_id", 1_000), Filters.lt("_id", 4_000)));
            collection.insertOne(RawBsonDocument.parse("{_id: 'last'}"));
            ClusterTime deleted = source.now();
            natural.timeIsGone(namespace(collection));
            for (int range = 0; range < plan.ranges(); range++) {
                RangeRead.Range rest = new RangeRead.Range(namespace(collection), plan, range, positions.get(range));
                try (PageRead pages = natural.read(rest, PAGE)) {
                    while (pages.hasNext()) {
                        Page page = pages.next();
                        assertFalse(deleted.isAfter(page.time()), "not of a later time");
                        page.documents().forEach(document -> copied.add(hex(document)));
                    }
                }
            }
        }
        Set<String> stored = stored(collection);
        assertEquals(2_001, stored.size());
        assertTrue(new HashSet<>(copied).containsAll(stored));
        assertEquals(copied.size(), new HashSet<>(copied).size(), "none is read twice");
    }

    @Test
    void aPlanOfAnotherTableIsOutdated() {
        MongoCollection<RawBsonDocument> collection = server.fresh("again");
        fill(collection, 200, Long::toString);
        RangePlan plan = plan(namespace(collection), "natural").orElseThrow();
        collection.drop();
        fill(collection, 200, Long::toString);
        RangeRead.Range piece = new RangeRead.Range(namespace(collection), plan, 0, RangePlan.OPEN_END);
        try (NaturalReads natural = natural("natural", RANGE_BYTES)) {
            assertThrows(OutdatedPlanException.class, () -> natural.read(piece, PAGE));
        }
    }

    private String filled(String name, int count, LongFunction<String> id) {
        MongoCollection<RawBsonDocument> collection = server.fresh(name);
        fill(collection, count, id);
        return namespace(collection);
    }

    private static void fill(MongoCollection<RawBsonDocument> collection, int count, LongFunction<String> id) {
        Server.insert(
                collection,
                LongStream.range(0, count)
                        .mapToObj(n -> RawBsonDocument.parse("{_id: %s, pad: '%s'}".formatted(id.apply(n), PAD)))
                        .toList());
    }

    private static String namespace(MongoCollection<RawBsonDocument> collection) {
        return collection.getNamespace().getFullName();
    }

    private NaturalReads natural(String order, long rangeBytes) {
        Map<String, String> settings =
                Map.of("towpath.copy.order", order, "towpath.copy.range.bytes", Long.toString(rangeBytes));
        return new NaturalReads(Sources.reads(source, settings), ANY);
    }

    private Optional<RangePlan> plan(String namespace, String order) {
        return plan(namespace, order, RANGE_BYTES);
    }

    /** Empty when the collection is to be read by its {@code _id}s. */
    private Optional<RangePlan> plan(String namespace, String order, long rangeBytes) {
        try (NaturalReads natural = natural(order, rangeBytes)) {
            return Optional.of(natural.plan(namespace))
                    .filter(plan -> plan.recordIds().isPresent());
        }
    }

    private static Set<String> stored(MongoCollection<RawBsonDocument> collection) {
        Set<String> documents = new HashSet<>();
        collection.find().forEach(document -> documents.add(hex(BsonBytes.of(document))));
        return documents;
    }

    private static String hex(byte[] document) {
        return HexFormat.of().formatHex(document);
    }

    /** Reads every piece page by page, breaking off at random and going on in another read. */
    private List<String> copied(String namespace, RangePlan plan, Random random) {
        List<String> documents = new ArrayList<>();
        try (NaturalReads natural = natural("natural", RANGE_BYTES)) {
            for (int range = 0; range < plan.ranges(); range++) {
                byte[] after = RangePlan.OPEN_END;
                for (boolean over = false; !over; ) {
                    try (PageRead pages = natural.read(
                            new RangeRead.Range(namespace, plan, range, after), new PageRead.Size(4_000, 1_000))) {
                        do {
                            Page page = pages.next();
                            page.documents().forEach(document -> documents.add(hex(document)));
                            over = page.isLast();
                            after = page.upTo();
                        } while (!over && random.nextBoolean());
                    }
                }
            }
        }
        return documents;
    }
}
