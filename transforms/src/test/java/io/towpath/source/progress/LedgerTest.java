package io.towpath.source.progress;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.support.Raw;
import io.towpath.support.StoredOffsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Through Connect's own storage of offsets, as JSON. */
class LedgerTest {
    private static final String ORDERS = "shop.orders";
    private static final ClusterTime START = new ClusterTime(100, 1);

    private final Partitions partitions = new Partitions("p");
    private final StoredOffsets offsets = new StoredOffsets();

    @AfterEach
    void close() {
        offsets.close();
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
            assertTrue(each.holds(ORDERS, id(11), new ClusterTime(105, 2)), "the last change that the row holds");
            assertFalse(each.holds(ORDERS, id(11), new ClusterTime(105, 3)), "made after its row was read");
            assertTrue(each.holds(ORDERS, id(12), new ClusterTime(110, 1)));
            assertFalse(each.holds(ORDERS, id(12), new ClusterTime(110, 2)));
            assertTrue(
                    each.holds(ORDERS, id(99), new ClusterTime(110, 1)), "was not there when the range's end was read");
            assertFalse(each.holds("shop.other", id(11), new ClusterTime(101, 1)), "was never copied");
            assertEquals(new ClusterTime(110, 1), each.largestTime());
        }
    }

    @Test
    void aRowFollowsUntilItsRangeIsInTheLog() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord()));
        assertTrue(restored().rows().rowFollows(ORDERS, id(1)), "no range is known yet");
        store(List.of(ledger.plan(ORDERS, new RangePlan(List.of(id(10)), 30, 3000, 7))));
        advance(ledger, page(1, new ClusterTime(105, 2), true, 10, 11));
        advance(ledger, page(0, new ClusterTime(106, 1), false, 1, 2));
        for (Ledger each : List.of(ledger, restored())) {
            assertTrue(each.rows().rowFollows(ORDERS, id(9)));
            assertTrue(each.rows().rowFollows(ORDERS, id(1)), "under a collation, 1 may come behind 2");
            assertFalse(each.rows().rowFollows(ORDERS, id(10)));
            assertFalse(each.rows().rowFollows("shop.other", id(9)), "is not copied");
        }
        advance(ledger, page(0, new ClusterTime(107, 1), true, 3));
        for (Ledger each : List.of(ledger, restored())) assertFalse(each.rows().rowFollows(ORDERS, id(9)));
        store(ledger.copyAgain("again", List.of(ORDERS), new ClusterTime(110, 1), false));
        for (Ledger each : List.of(ledger, restored())) assertTrue(each.rows().rowFollows(ORDERS, id(10)));
    }

    @Test
    void inNaturalOrderAnyRowMayFollowUntilAllAreInTheLog() throws Exception {
        Ledger ledger = begun();
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, natural())));
        advance(ledger, piece(0, new ClusterTime(105, 2), RangePlan.OPEN_END));
        for (Ledger each : List.of(ledger, restored())) assertTrue(each.rows().rowFollows(ORDERS, id(1)));
        advance(ledger, piece(1, new ClusterTime(106, 2), RangePlan.OPEN_END));
        for (Ledger each : List.of(ledger, restored())) assertFalse(each.rows().rowFollows(ORDERS, id(1)));
    }

    @Test
    void offsetsOfTheVersionBeforePiecesGoOn() throws Exception {
        Map<String, Object> root = new TreeMap<>(Map.of(
                "phase",
                "copy",
                "selection",
                "shop\\..*",
                "start",
                "100:1",
                "warning",
                "",
                "namespaces",
                "[\"shop.orders\"]"));
        Map<String, Object> plan =
                Map.of("ranges", 2L, "documents", 30L, "bytes", 3000L, "began", 7L, "bounds", "DgAAABBfaWQACgAAAAA=");
        store(List.of(
                partitions.offsetRecord(partitions.root(), root, ""),
                partitions.offsetRecord(partitions.of(ORDERS), plan, "")));
        CollectionCopy copy = restored().rows().copies().get(ORDERS).orElseThrow();
        assertFalse(copy.isNatural());
        assertEquals(1, copy.plan().rangeOf(id(10)));
        assertEquals(0, copy.plan().rangeOf(id(9)));
        assertEquals(plan, copy.plan().offset(), "the format is the same");
    }

    @Test
    void aPlanByRecordIdsIsNoPlanByKeys() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, natural())));
        advance(ledger, piece(0, new ClusterTime(105, 2), RecordIds.position(7)));

        assertNull(reader().offset(partitions.of(ORDERS)).get("bounds"), "record ids are no keys");
        CollectionCopy copy = restored().rows().copies().get(ORDERS).orElseThrow();
        assertEquals(natural().recordIds(), copy.plan().recordIds());
        assertEquals(2, copy.plan().ranges());
        assertEquals(10, RecordIds.recordId(copy.plan().to(0)));
        assertEquals(7, RecordIds.recordId(copy.range(0).after()));
        assertFalse(copy.range(0).isDone());
    }

    @Test
    void whatChangedBetweenTheTimesOfPiecesIsPendingUntilItIsReread() throws Exception {
        Ledger ledger = copiedInPieces(new ClusterTime(105, 2), new ClusterTime(110, 1));

        assertTrue(ledger.holds(ORDERS, id(1), new ClusterTime(105, 2)), "every row holds it");
        assertFalse(ledger.holds(ORDERS, id(1), new ClusterTime(110, 2)), "no row holds it");
        assertEquals(List.of(), ledger.newPending());
        assertTrue(ledger.holds(ORDERS, id(1), new ClusterTime(105, 3)));
        assertTrue(ledger.holds(ORDERS, id(2), new ClusterTime(110, 1)));
        List<SourceRecord> chunks = ledger.newPending();
        assertEquals(1, chunks.size(), "both are in it");
        store(chunks);
        assertEquals(List.of(), ledger.newPending());
        assertTrue(ledger.holds(ORDERS, id(1), new ClusterTime(120, 1)), "until it is re-read");

        Ledger again = restored();
        assertTrue(again.holds(ORDERS, id(2), new ClusterTime(120, 1)));
        assertFalse(again.holds(ORDERS, id(3), new ClusterTime(120, 1)));
        assertEquals(List.of(), again.forget(new ClusterTime(130, 1), false), "the rest is needed");
        ClusterTime read = new ClusterTime(130, 1);
        store(again.reread(ORDERS, List.of(id(2)), read));
        assertEquals(1, restored().rows().nextPending().orElseThrow().keys().size());
        assertEquals(read, restored().history().copied());
        assertFalse(again.holds(ORDERS, id(2), new ClusterTime(130, 2)));
        store(again.reread(ORDERS, List.of(id(1)), read));
        assertTrue(restored().rows().nextPending().isEmpty());
        store(again.forget(new ClusterTime(130, 2), false));
        assertTrue(restored().rows().copies().isEmpty());
    }

    @Test
    void documentsOfACollectionThatIsNotCopiedAreStoredOnlyIfTheyAreNotReadAtOnce() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.begin("", START, List.of());
        ledger.beginStream();
        ledger.addPending(ORDERS, id(1));
        ledger.addPending(ORDERS, id(2));
        assertEquals(List.of(), ledger.settled(ORDERS, List.of(id(1))), "nothing is stored of it");
        store(ledger.newPending());

        Ledger again = restored();
        assertEquals(List.of(ORDERS), again.rows().remembered());
        assertEquals(1, again.rows().nextPending().orElseThrow().keys().size());
        store(again.settled(ORDERS, List.of(id(2))));
        assertEquals(List.of(), restored().rows().remembered());
        assertNull(reader().offset(partitions.pending(ORDERS, 0)));

        again.addPending(ORDERS, id(3));
        store(again.newPending());
        store(again.reselect("", List.of(), again.rows().remembered()));
        assertEquals(List.of(), restored().rows().remembered(), "what is no longer captured is not read either");
    }

    @Test
    void thatTheLogEndsWithinATransactionIsStoredUntilItDoesNot() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.begin("", START, List.of());
        assertEquals(Optional.empty(), ledger.open(Optional.empty(), START));
        store(List.of(ledger.open(Optional.of(START), START).orElseThrow()));
        assertEquals(Optional.empty(), restored().open(Optional.of(START), START));
        assertEquals(Optional.empty(), restored().open(Optional.empty(), START), "the rest may still come");
        store(List.of(restored().open(Optional.empty(), START.next()).orElseThrow()));
        assertEquals(Optional.empty(), restored().open(Optional.empty(), START.next()));
    }

    @Test
    void nothingIsPendingWhereAllPiecesAreOfOneTime() throws Exception {
        ClusterTime time = new ClusterTime(105, 2);
        Ledger ledger = copiedInPieces(time, time);
        assertTrue(ledger.holds(ORDERS, id(1), time));
        assertFalse(ledger.holds(ORDERS, id(1), time.next()));
        assertTrue(ledger.rows().nextPending().isEmpty());
    }

    @Test
    void pendingDocumentsLieInChunksThatAKafkaRecordHolds() throws Exception {
        Ledger ledger = copiedInPieces(new ClusterTime(105, 2), new ClusterTime(110, 1));
        for (int id = 0; id < 5_500; id++) assertTrue(ledger.holds(ORDERS, id(id), new ClusterTime(106, 1)));
        List<SourceRecord> chunks = ledger.newPending();
        assertEquals(6, chunks.size());
        store(chunks);
        ledger.holds(ORDERS, id(9_000), new ClusterTime(106, 1));
        List<SourceRecord> added = ledger.newPending();
        assertEquals(1, added.size(), "only the chunk that has changed");
        store(added);

        Ledger again = restored();
        int keys = 0;
        for (Optional<RowTimes.Pending> next = again.rows().nextPending(); next.isPresent(); ) {
            keys += next.get().keys().size();
            store(again.reread(ORDERS, next.get().keys(), new ClusterTime(120, 1)));
            next = again.rows().nextPending();
        }
        assertEquals(5_501, keys);
        for (int chunk = 0; chunk < 6; chunk++) assertNull(reader().offset(partitions.pending(ORDERS, chunk)));
    }

    @Test
    void aKeyThatNoOffsetHoldsStopsTheTask() throws Exception {
        Ledger ledger = copiedInPieces(new ClusterTime(105, 2), new ClusterTime(110, 1));
        byte[] key = BsonBytes.of(new BsonDocument("_id", new BsonString("x".repeat(700_000))));
        ConnectException stopped =
                assertThrows(ConnectException.class, () -> ledger.holds(ORDERS, key, new ClusterTime(106, 1)));
        assertTrue(stopped.getMessage().startsWith("TWP-COPY-PENDING: "), stopped::getMessage);
    }

    @Test
    void whatACopyThatBeganAnewHasLeftInTheLogIsStillKnown() throws Exception {
        Ledger ledger = begun();
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, natural())));
        advance(ledger, piece(0, new ClusterTime(105, 2), RecordIds.position(7)));
        store(ledger.copyAnew(ORDERS));
        assertNull(reader().offset(partitions.of(ORDERS, 0)));
        Ledger again = restored();
        assertTrue(again.rows().copies().get(ORDERS).isEmpty(), "it is divided again");
        store(List.of(again.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7))));
        advance(again, page(0, new ClusterTime(115, 1), true, 1));
        again.beginStream();
        store(List.of(again.rootRecord()));

        Ledger streaming = restored();
        assertEquals(START, streaming.start());
        assertTrue(streaming.holds(ORDERS, id(1), new ClusterTime(105, 2)));
        assertTrue(streaming.rows().nextPending().isEmpty());
        assertTrue(streaming.holds(ORDERS, id(1), new ClusterTime(105, 3)));
        assertTrue(streaming.rows().nextPending().isPresent(), "a document that is gone has a row in the log");
        assertFalse(streaming.holds(ORDERS, id(2), new ClusterTime(115, 2)));
    }

    private Ledger copiedInPieces(ClusterTime first, ClusterTime second) throws Exception {
        Ledger ledger = begun();
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, natural())));
        advance(ledger, piece(1, first, RangePlan.OPEN_END));
        advance(ledger, piece(0, second, RangePlan.OPEN_END));
        ledger.beginStream();
        store(List.of(ledger.rootRecord()));
        return ledger;
    }

    private static RangePlan natural() {
        RecordIds recordIds = new RecordIds("db2:27017", "table:collection-7-42", new ClusterTime(105, 2));
        return new RangePlan(List.of(RecordIds.position(10)), 30, 3000, 7, Optional.of(recordIds));
    }

    private static Page piece(int range, ClusterTime time, byte[] upTo) {
        return new Page(ORDERS, range, List.of(id(1)), 100, time, upTo);
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
    void theLargestTimeOfEverythingCopiedStays() throws Exception {
        Ledger ledger = begun();
        assertEquals(START.previous(), ledger.history().copied(), "before anything is read");
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(id(10)), 1, 1, 7))));
        advance(ledger, page(0, new ClusterTime(107, 1), true, 1));
        advance(ledger, page(1, new ClusterTime(105, 1), true, 11));
        assertEquals(new ClusterTime(107, 1), restored().history().copied(), "of ranges, while they are held");
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        ledger.beginStream();
        store(ledger.forget(new ClusterTime(108, 1), false));
        assertTrue(restored().rows().copies().isEmpty());
        assertEquals(new ClusterTime(107, 1), restored().history().copied());

        Ledger later = restored();
        later.reselect("y", List.of("shop.added"), List.of());
        later.plan("shop.added", new RangePlan(List.of(), 1, 1, 7));
        later.advance(new Page("shop.added", 0, List.of(id(1)), 100, new ClusterTime(120, 5), true));
        assertEquals(new ClusterTime(120, 5), later.history().copied());
        store(later.forget(new ClusterTime(121, 1), false));
        assertEquals(new ClusterTime(120, 5), restored().history().copied());
    }

    @Test
    void timesAreForgottenOnlyWhenTheStreamHasPassedThem() throws Exception {
        Ledger ledger = begun();
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7))));
        advance(ledger, page(0, new ClusterTime(105, 1), true, 1));

        assertTrue(ledger.forget(new ClusterTime(105, 2), true).isEmpty(), "they may be of another collection");
        assertFalse(ledger.rows().isConfirmed(ORDERS));
        ledger.rows().unconfirmed().get(ORDERS).confirm();
        assertTrue(ledger.rows().isConfirmed(ORDERS));
        assertEquals(Map.of(), ledger.rows().unconfirmed());
        assertTrue(ledger.rows().isConfirmed("shop.other"), "it is not copied");
        assertTrue(ledger.forget(new ClusterTime(105, 1), true).isEmpty(), "another event of the same time may follow");
        List<SourceRecord> records = ledger.forget(new ClusterTime(105, 2), true);
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
        assertTrue(again.rows().copies().get(ORDERS).isEmpty(), "it is cut into ranges again");
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
        assertEquals(new ClusterTime(990, 2), closed.history().copied());
    }

    @Test
    void lostOffsetsStayLostUntilAResnapshotBeginsWhichLeavesAGap() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.lose("shop\\..*", START, "earlier");
        store(List.of(ledger.rootRecord()));
        Ledger again = restored();
        assertTrue(again.history().isLost());
        assertTrue(again.isStreaming(), "no other task copies anything");
        assertEquals("earlier", again.history().resnapshot());

        store(again.restart("again", again.selection(), again.start(), new ClusterTime(900, 1), List.of(ORDERS)));
        Ledger copying = restored();
        assertFalse(copying.history().isLost());
        assertFalse(copying.isStreaming());
        assertEquals(START.toString(), copying.history().gap());
    }

    @Test
    void collectionsThatComeBackLeaveAGap() throws Exception {
        Ledger ledger = begun();
        ledger.beginStream();
        store(ledger.copyAgain("again", List.of(ORDERS), new ClusterTime(900, 1), true));
        assertEquals("900:1", restored().history().gap());
    }

    @Test
    void aTaskThatNeverSawAPlanInNaturalOrderReadsNothingOfThePlanAfterIt() throws Exception {
        Ledger first = begun();
        store(List.of(first.rootRecord()));
        Ledger other = restored();
        // within a second, between two looks of the other task
        store(List.of(first.plan(ORDERS, natural())));
        store(first.copyAnew(ORDERS));
        store(List.of(first.plan(ORDERS, new RangePlan(List.of(id(10), id(20)), 30, 3000, 7))));

        assertTrue(other.followFirst(reader()));
        assertEquals(3, other.rows().copies().get(ORDERS).orElseThrow().ranges().size());
        for (int range = 0; range < 3; range++) {
            assertTrue(first.rows().has(new CopyShare(0, 2), ORDERS, range));
            assertFalse(other.rows().has(new CopyShare(1, 2), ORDERS, range), "range " + range);
        }
    }

    @Test
    void collectionsThatAreCopiedOnceMoreLeaveNoGap() throws Exception {
        Ledger ledger = begun();
        ledger.beginStream();
        store(ledger.copyAgain("again", List.of(ORDERS, "shop.later"), START, false));
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
        assertEquals(START.previous(), ledger.history().copied(), "it is of the moment of its event");
        store(List.of(ledger.rootRecord()));

        Ledger again = restored();
        assertTrue(again.holds(ORDERS, id(7), read));
        assertFalse(again.holds(ORDERS, id(7), read.next()));
        assertFalse(again.holds(ORDERS, id(8), read));
        assertFalse(again.holds("shop.empty", id(7), read));
        assertEquals(read, again.largestTime());
        assertTrue(again.forget(read, false).isEmpty(), "more of that moment may come");
        assertFalse(again.forget(read.next(), false).isEmpty());
        assertFalse(again.holds(ORDERS, id(7), read));
        again.addDocument(ORDERS, id(7), new ClusterTime(300, 1), true);
        assertEquals(new ClusterTime(300, 1), again.history().copied(), "states before are not in the log");
    }

    @Test
    void aDocumentInPlaceOfAnEventIsTheLatestUntilTheStreamHasPassedIt() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.begin("x", START, List.of());
        ledger.beginStream();
        assertEquals(START, ledger.largestTime());
        assertFalse(ledger.rows().holdsAny());
        for (int number = 1; number < 3; number++) {
            ClusterTime read = new ClusterTime(100 * (number + 1), 1);
            ledger.addDocument(ORDERS, id(number), read, false);
            assertEquals(read, ledger.largestTime());
        }
        assertTrue(ledger.rows().holdsAny());
        ledger.forget(new ClusterTime(300, 2), false);
        assertEquals(START, ledger.largestTime());
        assertFalse(ledger.rows().holdsAny());
    }

    /** The record in place of the event is in the collection that is gone: a delete that is dropped would be missing in the next one. */
    @Test
    void aDocumentInPlaceOfAnEventHoldsNothingOfTheCollectionThatFollowsItsOwn() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.begin("x", START, List.of());
        ledger.beginStream();
        ClusterTime read = new ClusterTime(200, 1);
        ledger.addDocument(ORDERS, id(1), read, true);
        ledger.addDocument("shop.other", id(1), read, true);
        assertTrue(ledger.holds(ORDERS, id(1), read));
        store(ledger.gone(List.of(ORDERS), new ClusterTime(150, 1)));
        for (Ledger each : List.of(ledger, restored())) {
            assertFalse(each.holds(ORDERS, id(1), read));
            assertFalse(each.isAhead(ORDERS, new ClusterTime(150, 1)));
            assertTrue(each.holds("shop.other", id(1), read));
            assertEquals(Map.of(), each.rows().copies());
        }
    }

    @Test
    void aDocumentInPlaceOfAnEventSaysNothingOfOtherCollectionsNorOfLaterChanges() throws Exception {
        Ledger ledger = new Ledger(partitions, reader());
        ledger.begin("x", START, List.of());
        ledger.beginStream();
        ClusterTime read = new ClusterTime(200, 1);
        ledger.addDocument(ORDERS, id(1), read, true);
        store(List.of(ledger.rootRecord()));
        for (Ledger each : List.of(ledger, restored())) {
            assertTrue(each.isAhead(ORDERS, read));
            assertFalse(each.isAhead(ORDERS, read.next()), "the document is of the collection before the change");
            assertFalse(each.isAhead("shop.other", read));
        }
    }

    @Test
    void theLogLacksStatesOfACollectionThatIsGoneBeforeItWasRead() throws Exception {
        Ledger ledger = begun();
        ClusterTime before = ledger.history().copied();
        ledger.gone(List.of("shop.other"), new ClusterTime(150, 1));
        assertEquals(before, ledger.history().copied());
        ledger.gone(List.of(ORDERS), new ClusterTime(160, 1));
        assertEquals(new ClusterTime(160, 1), ledger.history().copied());
    }

    @Test
    void rangesOfOtherTasksAreTakenOverOnceTheyAreStored() throws Exception {
        CopyShare first = new CopyShare(0, 2);
        Ledger planning = restored();
        planning.begin("shop\\..*", START, List.of(ORDERS));
        store(List.of(planning.rootRecord()));
        Ledger other = restored();
        assertTrue(other.followFirst(reader()));
        assertFalse(other.rows().isCopied(new CopyShare(1, 2)), "nothing is planned yet");

        store(List.of(planning.plan(ORDERS, new RangePlan(List.of(id(10), id(20)), 30, 3000, 7))));
        assertTrue(other.followFirst(reader()));
        int[] ranges = {0, 1, 2};
        for (int range : ranges)
            if (first.has(ORDERS, range)) advance(planning, page(range, new ClusterTime(105, 1), true, 10 * range));
        assertTrue(planning.rows().isCopied(first));
        planning.followOthers(first, reader());
        assertFalse(planning.rows().isCopied(), "the other task has stored nothing");
        assertEquals(List.of(1), List.copyOf(planning.rows().open(first).keySet()));

        for (int range : ranges)
            if (!first.has(ORDERS, range)) advance(other, page(range, START, true, 10 * range + 1));
        assertTrue(other.rows().isCopied(new CopyShare(1, 2)));
        planning.followOthers(first, reader());
        assertTrue(planning.rows().isCopied());
        assertEquals(new ClusterTime(105, 1), planning.history().copied());
        planning.beginStream();
        assertEquals(START, planning.start());
        store(List.of(planning.rootRecord()));
        assertFalse(other.followFirst(reader()), "the copy is over");
    }

    @Test
    void aTaskThatStartsLateReadsNoRangeThatTheStreamHasForgotten() throws Exception {
        Ledger first = restored();
        first.begin("shop\\..*", START, List.of(ORDERS));
        store(List.of(first.rootRecord()));
        Ledger late = restored(); // it has read the root only
        store(List.of(first.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7))));
        advance(first, page(0, new ClusterTime(105, 1), true, 1));
        first.beginStream();
        store(List.of(first.rootRecord()));
        store(first.forget(new ClusterTime(106, 1), false));
        assertFalse(late.followFirst(reader()));
    }

    /** Otherwise a change would be applied to a row that has it already. */
    @Test
    void whatIsReadAfterAChangeWasJudgedHoldsLaterChanges() throws Exception {
        Ledger ledger = begun();
        ledger.plan(ORDERS, new RangePlan(List.of(), 30, 3000, 7));
        assertTrue(ledger.holds(ORDERS, id(10), new ClusterTime(105, 1)), "its row comes later");
        assertTrue(ledger.holds("shop.empty", id(10), new ClusterTime(105, 1)), "it is not divided yet");
        assertFalse(ledger.holds("shop.other", id(10), new ClusterTime(105, 1)), "it is not copied");
        advance(ledger, page(0, new ClusterTime(105, 1), false, 10));
        assertTrue(ledger.holds(ORDERS, id(10), new ClusterTime(105, 1)));
        advance(ledger, page(0, new ClusterTime(110, 1), false, 12));
        assertTrue(ledger.holds(ORDERS, id(12), new ClusterTime(110, 1)));
        ledger.addDocument(ORDERS, id(50), new ClusterTime(120, 1), true);
        assertTrue(ledger.holds(ORDERS, id(50), new ClusterTime(120, 1)));
    }

    @Test
    void aCopyIsDoneWhenEachCollectionIsPlannedAndEachRangeIsRead() throws Exception {
        Ledger ledger = restored();
        ledger.begin("x", START, List.of(ORDERS));
        assertFalse(ledger.rows().isCopied(), "not divided into ranges yet");
        ledger.plan(ORDERS, new RangePlan(List.of(id(10)), 2, 1, 7));
        advance(ledger, page(0, new ClusterTime(105, 1), true, 1));
        assertFalse(ledger.rows().isCopied(), "a range is not read");
        assertFalse(ledger.rows().isCopied(new CopyShare(0, 1)), "by the only task");
        advance(ledger, page(1, new ClusterTime(105, 1), true, 11));
        assertTrue(ledger.rows().isCopied());
    }

    @Test
    void aNewSelectionCopiesWhatItAdds() throws Exception {
        Ledger ledger = begun();
        store(ledger.reselect("shop|bar", List.of("bar.added"), List.of("shop.empty")));
        for (Ledger each : List.of(ledger, restored())) {
            assertEquals("shop|bar", each.selection());
            assertEquals(
                    List.of(ORDERS, "bar.added"),
                    List.copyOf(each.rows().copies().keySet()));
            assertFalse(each.rows().isCopied());
        }
    }

    /** Neither its times nor its pending documents say anything about the next collection of that name. */
    @Test
    void aCollectionThatIsNoLongerCapturedLeavesNothing() throws Exception {
        Ledger ledger = copiedInPieces(new ClusterTime(105, 2), new ClusterTime(110, 1));
        assertTrue(ledger.holds(ORDERS, id(1), new ClusterTime(106, 1)));
        store(ledger.newPending());
        assertNotNull(reader().offset(partitions.pending(ORDERS, 0)));

        store(ledger.reselect("none", List.of(), List.of(ORDERS)));
        assertNull(reader().offset(partitions.pending(ORDERS, 0)));
        assertNull(reader().offset(partitions.of(ORDERS)));
        store(ledger.reselect("x", List.of(ORDERS), List.of()));
        store(List.of(ledger.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7))));
        ledger.addDocument("shop.other", id(1), new ClusterTime(300, 1), true);
        for (Ledger each : List.of(ledger, restored())) assertFalse(each.holds(ORDERS, id(1), new ClusterTime(105, 2)));
    }

    /** The log has its rows: the changes that they hold must not be applied to them. */
    @Test
    void aCollectionThatIsCopiedAgainKeepsTheTimesOfItsRowsInNaturalOrder() throws Exception {
        Ledger ledger = copiedInPieces(new ClusterTime(105, 2), new ClusterTime(110, 1));
        store(ledger.copyAgain("again", List.of(ORDERS), new ClusterTime(120, 1), false));
        assertNull(reader().offset(partitions.of(ORDERS, 0)));
        for (Ledger each : List.of(ledger, restored())) {
            assertTrue(each.holds(ORDERS, id(1), new ClusterTime(105, 2)));
            assertFalse(each.holds(ORDERS, id(1), new ClusterTime(110, 2)));
        }
    }

    /** The stream is hours behind the rows, which were read in one long round. */
    @Test
    void aCollectionThatIsCopiedAgainKeepsTheTimesOfItsRowsInTheOrderOfIds() throws Exception {
        Ledger ledger = begun();
        ledger.reselect("x", List.of(), List.of("shop.empty"));
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(), 30, 3000, 7))));
        advance(ledger, page(0, new ClusterTime(105, 2), false, 1));
        advance(ledger, page(0, new ClusterTime(110, 1), true, 12));
        ledger.beginStream();
        store(ledger.copyAgain("again", List.of(ORDERS), new ClusterTime(120, 1), false));
        assertNull(reader().offset(partitions.of(ORDERS, 0)));
        for (Ledger each : List.of(ledger, restored())) {
            assertTrue(each.holds(ORDERS, id(1), new ClusterTime(105, 1)));
            assertTrue(each.rows().nextPending().isEmpty(), "every row holds it");
            assertEquals(new ClusterTime(110, 1), each.largestTime(), "no row is read again before that");
            assertTrue(each.isAhead(ORDERS, new ClusterTime(110, 1)));
            assertTrue(each.holds(ORDERS, id(12), new ClusterTime(106, 1)));
            assertTrue(each.rows().isPending(ORDERS, id(12)), "whether its row holds it is forgotten");
            assertFalse(each.holds(ORDERS, id(1), new ClusterTime(110, 2)));
        }
    }

    /** Its creation is in the log, so no state of it is missing there. */
    @Test
    void theRowsOfACollectionThatFollowsASchemaChangeSayNothingAboutTheLogsBeginning() throws Exception {
        Ledger ledger = begun();
        ledger.beginStream();
        store(ledger.refill("shop.created"));
        Ledger again = restored();
        assertTrue(again.rows().copies().containsKey("shop.created"), "it is copied");
        store(List.of(again.plan("shop.created", new RangePlan(List.of(), 1, 1, 7))));
        advance(again, new Page("shop.created", 0, List.of(id(1)), 100, new ClusterTime(300, 1), true));
        again.followOthers(new CopyShare(0, 1), reader());
        for (Ledger each : List.of(again, restored()))
            assertEquals(START.previous(), each.history().copied());
    }

    @Test
    void closingAResnapshotDoesNotForgetWhatWasCopiedAfterIt() throws Exception {
        Ledger ledger = begun();
        store(ledger.restart("again", "x", START, new ClusterTime(900, 1), List.of(ORDERS)));
        ledger.plan(ORDERS, new RangePlan(List.of(), 1, 1, 7));
        advance(ledger, page(0, new ClusterTime(995, 1), true, 1));
        ledger.history().close("again", new ClusterTime(990, 1));
        assertEquals(new ClusterTime(995, 1), ledger.history().copied());
    }

    /** Its own progress may not be committed yet: the offsets that it reads are behind. */
    @Test
    void aTaskTakesOverOnlyTheRangesOfOthers() throws Exception {
        CopyShare first = new CopyShare(0, 2);
        CopyShare second = new CopyShare(1, 2);
        Ledger planning = restored();
        planning.begin("x", START, List.of(ORDERS));
        store(List.of(planning.rootRecord(), planning.plan(ORDERS, new RangePlan(List.of(id(10)), 2, 2, 7))));
        int own = first.has(ORDERS, 0) ? 0 : 1;
        Ledger other = restored();
        assertTrue(other.followFirst(reader()));
        ClusterTime early = new ClusterTime(105, 1);
        ClusterTime late = new ClusterTime(200, 1);

        planning.advance(page(own, early, false, 10 * own + 1));
        assertTrue(planning.holds(ORDERS, id(10 * own + 1), early));
        other.advance(page(1 - own, early, false, 10 * (1 - own) + 1));
        assertTrue(other.followFirst(reader()));
        assertEquals(1, other.rows().range(ORDERS, 1 - own).rows(), "not stored yet");
        assertTrue(other.rows().has(second, ORDERS, 1 - own));
        advance(other, page(1 - own, late, true, 10 * (1 - own) + 2));
        planning.followOthers(first, reader());

        assertEquals(1, planning.rows().range(ORDERS, own).rows(), "not stored yet");
        assertEquals(2, planning.rows().range(ORDERS, 1 - own).rows());
        assertTrue(planning.holds(ORDERS, id(10 * (1 - own) + 2), late));
        assertEquals(late, planning.history().copied(), "the log lacks states before that");
    }

    @Test
    void largePendingKeysAreSharedOutToMoreChunks() throws Exception {
        Ledger ledger = copiedInPieces(new ClusterTime(105, 2), new ClusterTime(110, 1));
        for (int n = 0; n < 20; n++) {
            byte[] key = BsonBytes.of(new BsonDocument("_id", new BsonString(n + "x".repeat(10_000))));
            assertTrue(ledger.holds(ORDERS, key, new ClusterTime(106, 1)));
            assertTrue(ledger.holds(ORDERS, key, new ClusterTime(107, 1)), "it is in one chunk only");
        }
        List<SourceRecord> chunks = ledger.newPending();
        assertEquals(4, chunks.size(), "of six at most");
        store(chunks);
        assertEquals(2, restored().rows().nextPending().orElseThrow().keys().size());
    }

    @Test
    void theNextRoundBeginsWhereTheStreamIs() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord(), ledger.plan(ORDERS, new RangePlan(List.of(), 30, 3000, 7))));
        assertTrue(Ledger.hasNews(0, partitions, reader()));
        assertFalse(Ledger.hasNews(1, partitions, reader()), "the task has ended this round");
        advance(ledger, page(0, new ClusterTime(105, 1), false, 10));
        Ledger other = restored();
        store(List.of(ledger.catchUp()));
        for (Ledger each : List.of(ledger, restored())) {
            assertTrue(each.isCatchingUp());
            assertFalse(each.isCopying());
            assertFalse(each.isStreaming());
            assertFalse(each.holds(ORDERS, id(10), new ClusterTime(106, 1)), "made after its row was read");
            assertTrue(each.holds(ORDERS, id(11), new ClusterTime(106, 1)), "its row comes later");
        }
        assertFalse(Ledger.hasNews(0, partitions, reader()), "the stream runs");
        assertFalse(other.followFirst(reader()));
        store(List.of(ledger.beginRound(new ClusterTime(110, 1)), partitions.endRecord(1, 1)));

        assertTrue(Ledger.hasNews(partitions.ended(1, reader()), partitions, reader()));
        assertFalse(other.followFirst(reader()), "it read the round before");
        Ledger next = restored();
        assertEquals(new ClusterTime(110, 1), next.start());
        assertEquals(2, next.round());
        assertTrue(next.isCopying());
        next.beginStream();
        assertFalse(next.holds(ORDERS, id(11), new ClusterTime(106, 1)), "added collections are read as of the stream");
    }

    @Test
    void changesOfACollectionThatFollowsASchemaChangeAreEmittedBetweenRounds() throws Exception {
        Ledger ledger = begun();
        store(List.of(ledger.rootRecord()));
        ledger.refill("shop.renamed");
        store(List.of(ledger.catchUp()));
        for (Ledger each : List.of(ledger, restored())) {
            assertFalse(each.holds("shop.renamed", id(1), new ClusterTime(106, 1)));
            assertTrue(each.holds(ORDERS, id(1), new ClusterTime(106, 1)));
            assertFalse(each.rows().initial().containsKey("shop.renamed"));
        }
    }

    @Test
    void ofACollectionThatIsGoneBeforeItIsReadTheLogLacksTheStatesUpToThen() throws Exception {
        Ledger ledger = begun();
        ClusterTime gone = new ClusterTime(120, 1);
        store(ledger.gone(List.of(ORDERS), gone));
        assertEquals(gone, restored().history().copied());
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
        return offsets.reader();
    }

    private void store(Collection<SourceRecord> records) throws Exception {
        offsets.store(records);
    }
}
