package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ReadPreference;
import com.mongodb.client.MongoCollection;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.RecordIds;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.time.Duration;
import java.util.AbstractList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What the copying threads report to the task. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class CopyThreadsServerTest {
    private static final long HOUR = 3_600;

    @Test
    void anErrorThatIsNoExceptionIsToldToo() throws InterruptedException {
        Map<String, String> configuration = Sources.configuration();
        Error error = new NoClassDefFoundError("io/towpath/Gone");
        List<byte[]> bounds = new AbstractList<>() {
            @Override
            public byte[] get(int index) {
                throw error;
            }

            @Override
            public int size() {
                return 1;
            }
        };
        try (SourceCluster source = Sources.connected(configuration);
                CopyThreads threads = new CopyThreads(Sources.reads(source), "p", source.now())) {
            threads.read(new RangeRead.Range("shop.orders", new RangePlan(bounds, 1, 1, 1), 0, RangePlan.OPEN_END));
            threads.start();
            CopyReports.Failed failed = assertInstanceOf(CopyReports.Failed.class, threads.next(30_000));
            assertEquals("shop.orders", failed.namespace());
            assertEquals(error, failed.cause());
        }
    }

    /** What a view has are documents of other collections. */
    @Test
    void ofANameThatIsAViewsByNowNothingIsCopied() throws InterruptedException {
        try (Server server = new Server();
                SourceCluster source = Sources.connected(Sources.configuration())) {
            MongoCollection<RawBsonDocument> people = server.fresh("people");
            people.insertMany(List.of(document(1), document(7)));
            String users = server.fresh("users").getNamespace().getFullName();
            server.run("{create: 'users', viewOn: 'people', pipeline: [{$match: {_id: {$gt: 0}}}]}");
            SnapshotReads reads = Sources.reads(source);

            RangePlan divided = new RangePlan(List.of(CanonicalKey.of(BsonBytes.of(document(5)))), 2, 2, 1);
            for (RangePlan plan : List.of(new RangePlan(List.of(), 2, 2, 1), divided)) {
                for (int range = 0; range < plan.ranges(); range++) {
                    RangeRead.Range read = new RangeRead.Range(users, plan, range, RangePlan.OPEN_END);
                    Page page = assertInstanceOf(CopyReports.Copied.class, first(reads, read))
                            .page();
                    assertEquals(List.of(), page.documents());
                    assertTrue(page.isLast());
                }
            }

            String namespace = people.getNamespace().getFullName();
            PhysicalTable table = PhysicalTable.of(source, namespace, ReadPreference.primary())
                    .orElseThrow();
            RecordIds recordIds = new RecordIds(table.member(), table.name(), source.now());
            assertInstanceOf(CopyReports.Outdated.class, first(reads, range(users, recordIds, HOUR)));
            try (NaturalReads natural = new NaturalReads(reads, source.now())) {
                RangePlan plan = natural.plan(users);
                assertEquals(List.of(), plan.bounds());
                assertEquals(0, plan.documents());
            }
        }
    }

    private static RawBsonDocument document(int id) {
        return RawBsonDocument.parse("{_id: %d}".formatted(id));
    }

    @Test
    @Tag("nightly")
    void anOutageOfAMemberGoesOnInTheNextRoundForAsLongAsWasReadBefore() throws InterruptedException {
        try (Server server = new Server();
                SourceCluster source = Sources.connected(Sources.configuration())) {
            server.requireTestCommands();
            MongoCollection<RawBsonDocument> collection = server.fresh("away");
            collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
            String namespace = collection.getNamespace().getFullName();
            PhysicalTable table = PhysicalTable.of(source, namespace, ReadPreference.primary())
                    .orElseThrow();
            RecordIds recordIds = new RecordIds(table.member(), table.name(), source.now());
            SnapshotReads reads = Sources.reads(source);
            server.fail("alwaysOn", "failCommands: ['find'], errorCode: 91");
            try {
                assertInstanceOf(CopyReports.Retried.class, round(reads, range(namespace, recordIds, HOUR)));
                assertTrue(reads.outages().get(table.member()) > 0);
                assertInstanceOf(CopyReports.Outdated.class, afterOutage(60, source, range(namespace, recordIds, 65)));
            } finally {
                server.fail("off", "");
            }
            assertInstanceOf(CopyReports.Copied.class, round(reads, range(namespace, recordIds, HOUR)));
            assertEquals(Map.of(), reads.outages());
        }
    }

    /** Of a plan that began before this many seconds. */
    private static RangeRead.Range range(String namespace, RecordIds recordIds, long seconds) {
        long began = System.currentTimeMillis() - Duration.ofSeconds(seconds).toMillis();
        RangePlan plan = new RangePlan(List.of(), 1, 1, began, Optional.of(recordIds));
        return new RangeRead.Range(namespace, plan, 0, RangePlan.OPEN_END);
    }

    /** Reads of its own: a thread of the round before may still note how long that had waited. */
    private static CopyReports.Report afterOutage(long seconds, SourceCluster source, RangeRead.Range range)
            throws InterruptedException {
        SnapshotReads reads = Sources.reads(source);
        reads.outages()
                .put(
                        range.plan().recordIds().orElseThrow().member(),
                        Duration.ofSeconds(seconds).toNanos());
        return round(reads, range);
    }

    /** Returns the second report of threads that read a range, or the first if that has rows. */
    private static CopyReports.Report round(SnapshotReads reads, RangeRead.Range range) throws InterruptedException {
        try (CopyThreads threads = new CopyThreads(reads, "p", reads.source().now())) {
            threads.read(range);
            threads.start();
            CopyReports.Report first = threads.next(30_000);
            return first instanceof CopyReports.Copied ? first : threads.next(30_000);
        }
    }

    private static CopyReports.Report first(SnapshotReads reads, RangeRead.Range range) throws InterruptedException {
        try (CopyThreads threads = new CopyThreads(reads, "p", reads.source().now())) {
            threads.read(range);
            threads.start();
            return threads.next(30_000);
        }
    }
}
