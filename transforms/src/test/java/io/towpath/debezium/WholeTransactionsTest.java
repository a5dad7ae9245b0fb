package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.record.BsonBytes;
import io.towpath.record.ClusterTime;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.junit.jupiter.api.Test;

class WholeTransactionsTest {
    private final WholeTransactions transactions = new WholeTransactions(4_200);

    @Test
    void onlyWhatMayBeOfAnUnfinishedTransactionWaits() {
        SourceRecord first = ofTransaction(2, "a");
        SourceRecord second = ofTransaction(2, "b");
        SourceRecord other = event(3);

        assertEquals(List.of(event(1), event(1)), transactions.of(List.of(event(1), event(1))));
        assertEquals(List.of(event(1)), transactions.of(List.of(event(1), first)));
        assertEquals(List.of(), transactions.of(List.of(second)));
        assertEquals(List.of(first, second, other), transactions.of(List.of(other)));
        assertEquals(List.of(), transactions.of(List.of()));
    }

    @Test
    void thePositionOfAnIdleStreamShowsThatATransactionIsComplete() {
        SourceRecord event = ofTransaction(2, "a");
        SourceRecord behindIt = heartbeat(2, false);
        SourceRecord idle = heartbeat(2, true);

        assertEquals(List.of(), transactions.of(List.of(event, behindIt)));
        assertEquals(List.of(event, behindIt, idle), transactions.of(List.of(idle)));
    }

    @Test
    void aTransactionThatFollowsAnotherOneWaitsAlone() {
        SourceRecord first = ofTransaction(2, "a");
        SourceRecord second = ofTransaction(3, "b");
        assertEquals(List.of(first), transactions.of(List.of(first, second)));
        assertEquals(List.of(second, event(4)), transactions.of(List.of(event(4))));
    }

    @Test
    void aTransactionThatIsTooLargeComesInPartsAndIsKnownUntilItsEnd() {
        SourceRecord large = ofTransaction(2, "x".repeat(150));
        assertEquals(List.of(), transactions.of(List.of(large)));
        assertEquals(Optional.empty(), transactions.cut());
        assertEquals(List.of(large, large), transactions.of(List.of(large)));
        assertEquals(Optional.of(time(2)), transactions.cut());
        assertEquals(List.of(), transactions.of(List.of(large)));
        assertEquals(Optional.of(time(2)), transactions.cut());
        assertEquals(List.of(large, event(3)), transactions.of(List.of(event(3))));
        assertEquals(Optional.empty(), transactions.cut());
    }

    @Test
    void whatWaitsComesAgainWhenTheStreamBeginsAgain() {
        SourceRecord event = ofTransaction(2, "a");
        transactions.of(List.of(event));
        transactions.begin();
        assertEquals(List.of(event, event(3)), transactions.of(List.of(event, event(3))));
    }

    @Test
    void aPlaceBetweenRecordsDividesNoTransaction() {
        List<SourceRecord> records = List.of(
                ofTransaction(1, "a"), ofTransaction(1, "b"), event(2), ofTransaction(3, "a"), ofTransaction(3, "b"));
        List<Integer> places = new ArrayList<>();
        for (int index = 0; index <= 4; index++) places.add(WholeTransactions.between(records, index));
        assertEquals(List.of(2, 2, 2, 3, 3), places);
    }

    /** However the stream is divided into batches: in order, nothing twice, and no transaction in two parts. */
    @Property
    void allComesInOrderAndNoTransactionIsDivided(
            @ForAll("sizes") List<Integer> sizes, @ForAll("sizes") List<Integer> batches) {
        List<SourceRecord> stream = new ArrayList<>();
        for (int number = 0; number < sizes.size(); number++) {
            int size = sizes.get(number);
            if (size == 1) stream.add(event(number + 1));
            else for (int part = 0; part < size; part++) stream.add(ofTransaction(number + 1, ""));
        }
        stream.add(heartbeat(sizes.size() + 1, true));
        WholeTransactions whole = new WholeTransactions(WholeTransactions.MOST_BYTES);
        List<SourceRecord> emitted = new ArrayList<>();
        int next = 0;
        for (int turn = 0; next < stream.size(); turn++) {
            int size = batches.isEmpty() ? 3 : batches.get(turn % batches.size());
            List<SourceRecord> batch = stream.subList(next, Math.min(stream.size(), next + size));
            next += batch.size();
            emitted.addAll(whole.of(batch));
            int upTo = emitted.size();
            if (upTo > 0 && upTo < stream.size()) assertEquals(upTo, WholeTransactions.between(stream, upTo));
        }
        assertEquals(stream, emitted);
    }

    @Provide
    Arbitrary<List<Integer>> sizes() {
        return Arbitraries.integers().between(1, 6).list().ofMaxSize(12);
    }

    private static ClusterTime time(int number) {
        return new ClusterTime(100, number);
    }

    private static SourceRecord event(int number) {
        return DebeziumRecords.op("c").offset(Map.of("sec", 100, "ord", number)).record();
    }

    private static SourceRecord ofTransaction(int number, String text) {
        return DebeziumRecords.op("c")
                .offset(Map.of("sec", 100, "ord", number))
                .after(Raw.document(Raw.string("text", text)))
                .ofTransaction(7)
                .record();
    }

    /** @param isIdle whether its position is that of an empty batch, and not of the event before it */
    private static SourceRecord heartbeat(int number, boolean isIdle) {
        if (!isIdle) return new SourceRecord(Map.of(), Map.of("sec", 100, "ord", number), "heartbeats", null, null);
        String data = "82%08X%08X2B0229296E04".formatted(100, number);
        String token =
                Base64.getEncoder().encodeToString(BsonBytes.of(new BsonDocument("_data", new BsonString(data))));
        Map<String, Object> offset = Map.of("sec", -1, "ord", -1, "resume_token", token);
        return new SourceRecord(Map.of(), offset, "heartbeats", null, null);
    }
}
