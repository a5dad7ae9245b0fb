package io.towpath.source.progress;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.apache.kafka.connect.storage.OffsetStorageReaderImpl;
import org.apache.kafka.connect.storage.OffsetStorageWriter;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Through Connect's own storage of offsets, as JSON. */
class LedgerTest {
    private static final String ORDERS = "shop.orders";
    private static final ClusterTime START = new ClusterTime(100, 1);

    private final Partitions partitions = new Partitions("p");
    private final JsonConverter converter = new JsonConverter();
    private final MemoryOffsetBackingStore store = new MemoryOffsetBackingStore() {
        @Override
        public java.util.Set<Map<String, Object>> connectorPartitions(String connectorName) {
            throw new UnsupportedOperationException("not asked for in these tests");
        }
    };

    @BeforeEach
    void open() {
        converter.configure(Map.of("schemas.enable", "false"), false);
        store.start();
    }

    @AfterEach
    void close() {
        store.stop();
        converter.close();
    }

    @Test
    void nothingHasBegunWhereNothingIsStored() {
        assertFalse(restored().hasBegun());
    }

    @Test
    void theCopyGoesOnWithAllThatWasStored() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(id(10), id(20)), 30, 3000, 7))));
        advance(ledger, page(1, new ClusterTime(105, 2), false, 10, 11));

        Ledger again = restored();

        assertTrue(again.hasBegun());
        assertFalse(again.isStreaming());
        assertEquals("shop\\..*", again.selection());
        CollectionCopy copy = again.rows().copies().get(ORDERS).orElseThrow();
        assertEquals(3, copy.plan().ranges());
        assertEquals(30, copy.plan().documents());
        assertEquals(2, copy.range(1).rows());
        assertFalse(copy.range(1).isDone());
        assertEquals(
                List.of("shop.orders", "shop.empty"),
                List.copyOf(again.rows().copies().keySet()));
        assertTrue(again.rows().copies().get("shop.empty").isEmpty(), "not cut into ranges yet");
        assertEquals(0, java.util.Arrays.compare(id(11), copy.range(1).after()));
    }

    @Test
    void aRangeThatWentOnLaterKeepsTheTimeOfEachPart() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(), 30, 3000, 7))));
        advance(ledger, page(0, new ClusterTime(105, 2), false, 10, 11));
        advance(ledger, page(0, new ClusterTime(110, 1), true, 12, 13));

        for (Ledger each : List.of(ledger, restored())) {
            assertTrue(
                    each.rows().holds(ORDERS, id(11), new ClusterTime(105, 2)), "the last change that the row holds");
            assertFalse(each.rows().holds(ORDERS, id(11), new ClusterTime(105, 3)), "made after its row was read");
            assertTrue(each.rows().holds(ORDERS, id(12), new ClusterTime(110, 1)));
            assertFalse(each.rows().holds(ORDERS, id(12), new ClusterTime(110, 2)));
            assertTrue(
                    each.rows().holds(ORDERS, id(99), new ClusterTime(110, 1)),
                    "was not there when the range's end was read");
            assertFalse(each.rows().holds("shop.other", id(11), new ClusterTime(101, 1)), "was never copied");
            assertEquals(new ClusterTime(110, 1), each.largestTime());
        }
    }

    @Test
    void whatTheCopyWarnsOfIsStoredUntilItIsOver() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord()));
        assertEquals("", restored().warning());

        ledger.warn("the oplog is short");
        store(List.of(ledger.rootRecord()));
        assertEquals("the oplog is short", restored().warning());

        ledger.beginStream();
        store(List.of(ledger.rootRecord()));
        assertEquals("", restored().warning());
    }

    @Test
    void theStreamBeginsAtTheSmallestTime() throws Exception {
        Ledger ledger = begun();
        ledger.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7));
        advance(ledger, page(0, new ClusterTime(99, 5), true, 1)); // by a secondary that was behind
        ledger.beginStream();
        store(List.of(ledger.rootRecord()));

        assertEquals(new ClusterTime(99, 5), restored().start());
        assertTrue(restored().isStreaming());
    }

    @Test
    void theLargestTimeOfEverythingCopiedStays() throws Exception {
        Ledger ledger = begun();
        assertEquals(Optional.of(START.previous()), ledger.history().copied(), "before anything is read");
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(id(10)), 1, 1, 7))));
        advance(ledger, page(0, new ClusterTime(107, 1), true, 1));
        advance(ledger, page(1, new ClusterTime(105, 1), true, 11));
        assertEquals(
                Optional.of(new ClusterTime(107, 1)), restored().history().copied(), "of ranges, while they are held");
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        ledger.beginStream();
        store(ledger.forget(new ClusterTime(108, 1)));
        assertTrue(restored().rows().copies().isEmpty());
        assertEquals(Optional.of(new ClusterTime(107, 1)), restored().history().copied());

        Ledger later = restored();
        later.reselect("y", List.of("shop.added"), List.of());
        later.plan("shop.added", new RangePlan(List.of(), 1, 1, 7));
        later.advance(new Page("shop.added", 0, List.of(id(1)), 100, new ClusterTime(120, 5), true));
        assertEquals(Optional.of(new ClusterTime(120, 5)), later.history().copied());
        store(later.forget(new ClusterTime(121, 1)));
        assertEquals(Optional.of(new ClusterTime(120, 5)), restored().history().copied());
    }

    @Test
    void whatAnEarlierVersionCopiedIsNotKnownOnceItStreams() throws Exception {
        Ledger ledger = begun();
        storeWithoutCopied(ledger);
        assertEquals(Optional.of(START.previous()), restored().history().copied(), "while it copies, its ranges tell");
        ledger.beginStream();
        storeWithoutCopied(ledger);
        Ledger restored = restored();
        assertEquals(Optional.empty(), restored.history().copied());
        restored.history().copiedBefore(new ClusterTime(300, 1));
        store(List.of(restored.rootRecord()));
        assertEquals(Optional.of(new ClusterTime(300, 1)), restored().history().copied());
    }

    private void storeWithoutCopied(Ledger ledger) throws Exception {
        SourceRecord root = ledger.rootRecord();
        Map<String, Object> offset = new TreeMap<>();
        root.sourceOffset().forEach((name, value) -> offset.put(name.toString(), value));
        assertNotNull(offset.remove("copied"));
        store(List.of(partitions.offsetRecord(partitions.root(), offset, "")));
    }

    @Test
    void timesAreForgottenOnlyWhenTheStreamHasPassedThem() throws Exception {
        Ledger ledger = begun();
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7))));
        advance(ledger, page(0, new ClusterTime(105, 1), true, 1));

        assertTrue(ledger.forget(new ClusterTime(105, 1)).isEmpty(), "another event of the same time may follow");
        List<SourceRecord> records = ledger.forget(new ClusterTime(105, 2));
        store(records);

        assertEquals(3, records.size(), "the range, the collection, and what is left");
        assertTrue(restored().rows().copies().isEmpty());
        assertNull(reader().offset(partitions.of(ORDERS, 0)));
        assertNull(reader().offset(partitions.of(ORDERS)));
        assertNotNull(reader().offset(partitions.root()));
    }

    @Test
    void aResnapshotForgetsTheCopyBeforeAndKeepsSinceWhenHistoryIsMissing() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(id(10)), 30, 3000, 7))));
        advance(ledger, page(0, new ClusterTime(105, 2), true, 1, 2));
        ClusterTime since = new ClusterTime(110, 1);
        ClusterTime now = new ClusterTime(900, 1);

        store(ledger.restart("again", "shop\\..*", since, now, List.of(ORDERS)));
        store(ledger.restart("once more", "shop\\..*", now, new ClusterTime(950, 1), List.of(ORDERS)));
        Ledger again = restored();

        assertFalse(again.isStreaming());
        assertTrue(again.rows().copies().get(ORDERS).isEmpty(), "it is cut into ranges anew");
        assertEquals(new ClusterTime(950, 1), again.start());
        assertEquals("once more", again.history().resnapshot());
        assertEquals(since.toString(), again.history().gap(), "the first gap is not forgotten");
        store(List.of(again.plan(ORDERS, new RangePlan(List.of(id(10)), 30, 3000, 8))));
        assertEquals(
                0,
                restored().rows().copies().get(ORDERS).orElseThrow().range(0).rows(),
                "no offset of the copy before");
    }

    @Test
    void theLogTellsEveryMomentAgainFromWhereAResnapshotIsClosed() throws Exception {
        Ledger ledger = begun();
        store(ledger.restart("again", "shop\\..*", START, new ClusterTime(900, 1), List.of()));
        ledger.beginStream();

        ledger.history().close("another", new ClusterTime(990, 1));
        assertEquals(START.toString(), ledger.history().gap());
        ledger.history().close("again", new ClusterTime(990, 2));
        store(List.of(ledger.rootRecord()));
        Ledger closed = restored();
        closed.history().close("again", new ClusterTime(999, 1));

        assertEquals("", closed.history().gap());
        assertEquals(Optional.of(new ClusterTime(990, 2)), closed.history().copied());
    }

    @Test
    void collectionsThatAreCopiedOnceMoreLeaveNoGap() throws Exception {
        Ledger ledger = begun();
        ledger.beginStream();
        store(ledger.copyAgain("again", List.of(ORDERS, "shop.later")));
        Ledger again = restored();
        assertTrue(again.isStreaming());
        assertEquals("", again.history().gap());
        assertTrue(again.rows().copies().get(ORDERS).isEmpty());
        assertTrue(again.rows().copies().get("shop.later").isEmpty());
        assertEquals("again", again.history().resnapshot());
    }

    @Test
    void whatWasReadInPlaceOfAnEventHoldsTheRestOfItsTransaction() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.begin("shop\\..*", START, List.of());
        ledger.beginStream();
        ClusterTime read = new ClusterTime(200, 5);
        ledger.addDocument(ORDERS, id(7), read, false);
        assertEquals(Optional.of(START.previous()), ledger.history().copied(), "it is of the moment of its event");
        store(List.of(ledger.rootRecord()));

        Ledger again = restored();
        assertTrue(again.rows().holds(ORDERS, id(7), read));
        assertFalse(again.rows().holds(ORDERS, id(7), read.next()));
        assertFalse(again.rows().holds(ORDERS, id(8), read));
        assertFalse(again.rows().holds("shop.empty", id(7), read));
        assertEquals(read, again.largestTime());
        assertTrue(again.forget(read).isEmpty(), "more of that moment may come");
        assertFalse(again.forget(read.next()).isEmpty());
        assertFalse(again.rows().holds(ORDERS, id(7), read));
        again.addDocument(ORDERS, id(7), new ClusterTime(300, 1), true);
        assertEquals(
                Optional.of(new ClusterTime(300, 1)), again.history().copied(), "states before are not in the log");
    }

    private Ledger begun() {
        Ledger ledger = restored();
        ledger.begin("shop\\..*", START, List.of(ORDERS, "shop.empty"));
        return ledger;
    }

    private void advance(Ledger ledger, Page page) throws Exception {
        Map<String, Object> offset = ledger.advance(page);
        store(List.of(partitions.offsetRecord(partitions.of(page.namespace(), page.range()), offset, "")));
    }

    private static Page page(int range, ClusterTime time, boolean isLast, int... ids) {
        List<byte[]> documents = new ArrayList<>();
        for (int id : ids) documents.add(id(id));
        return new Page(ORDERS, range, documents, 100, time, isLast);
    }

    private static byte[] id(int id) {
        return CanonicalKey.of(Raw.document(Raw.int32("_id", id)));
    }

    private Ledger restored() {
        return new Ledger(partitions, reader());
    }

    private OffsetStorageReader reader() {
        return new OffsetStorageReaderImpl(store, "p-source", converter, converter);
    }

    private void store(Collection<SourceRecord> records) throws Exception {
        OffsetStorageWriter writer = new OffsetStorageWriter(store, "p-source", converter, converter);
        for (SourceRecord record : records) {
            Map<String, Object> partition = new TreeMap<>(record.sourcePartition());
            @SuppressWarnings("unchecked")
            Map<String, Object> offset = (Map<String, Object>) record.sourceOffset();
            writer.offset(partition, offset);
        }
        assertTrue(writer.beginFlush());
        writer.doFlush((error, nothing) -> {}).get(5, TimeUnit.SECONDS);
    }
}
