package io.towpath.debezium;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Keeps the events of a transaction of the source together: they wait until an event of a later time, or the stream's position, shows that all
 * have come. Other events never wait. A transaction that is too large for that is cut.
 */
final class WholeTransactions {
    /** Of the events that wait, in a worker. */
    static final long MOST_BYTES = 64 << 20;
    /** Of an event without its documents, in the worker's memory. */
    private static final int OVERHEAD = 2_000;

    private final long mostBytes;
    /** Of one transaction. */
    private List<SourceRecord> waiting = new ArrayList<>();

    private long waitingBytes;
    /** The time of a transaction of which a part was let through; null if there is none. */
    private ClusterTime cut;

    /** @param mostBytes of events that wait */
    WholeTransactions(long mostBytes) {
        this.mostBytes = mostBytes;
    }

    /** Those of Debezium's records whose transactions are complete, with those that had to wait; in the stream's order. */
    List<SourceRecord> of(List<SourceRecord> records) {
        if (records.isEmpty()) return records;
        Optional<ClusterTime> complete =
                EventTime.before(records.get(records.size() - 1).sourceOffset());
        if (cut != null && complete.filter(time -> !cut.isAfter(time)).isPresent()) cut = null;
        boolean goesOn = !waiting.isEmpty()
                && complete.filter(time -> !time(waiting.get(0)).isAfter(time)).isEmpty();
        int end = goesOn ? 0 : endOfWhole(records, complete);
        List<SourceRecord> whole = new ArrayList<>();
        if (!goesOn) take(whole);
        whole.addAll(records.subList(0, end));
        for (SourceRecord record : records.subList(end, records.size())) {
            waiting.add(record);
            waitingBytes += OVERHEAD + QueuedBytes.documents(record);
        }
        if (waitingBytes > mostBytes) {
            cut = time(waiting.get(0));
            take(whole);
        }
        return whole;
    }

    private void take(List<SourceRecord> into) {
        into.addAll(waiting);
        begin();
    }

    private static ClusterTime time(SourceRecord record) {
        return EventTime.of(record.sourceOffset()).orElseThrow();
    }

    /** How many records precede the first of a transaction that may go on. */
    private static int endOfWhole(List<SourceRecord> records, Optional<ClusterTime> complete) {
        int end = records.size();
        if (complete.isEmpty()) return end;
        for (int index = end - 1; index >= 0; index--) {
            SourceRecord record = records.get(index);
            Optional<ClusterTime> time = EventTime.of(record.sourceOffset());
            if (time.isEmpty() || !time.get().isAfter(complete.get())) break;
            if (isOfTransaction(record)) end = index;
        }
        return end;
    }

    private static boolean isOfTransaction(SourceRecord record) {
        return DebeziumEvent.in(record).filter(DebeziumEvent::isOfTransaction).isPresent();
    }

    /** The place nearest before {@code index} that divides no transaction; after it, where it would be the beginning. */
    static int between(List<SourceRecord> records, int index) {
        int place = index;
        while (place > 0 && divides(records, place)) place--;
        if (place == 0) for (place = Math.max(index, 1); place < records.size() && divides(records, place); ) place++;
        return place;
    }

    private static boolean divides(List<SourceRecord> records, int place) {
        SourceRecord before = records.get(place - 1);
        SourceRecord after = records.get(place);
        return isOfTransaction(before)
                && isOfTransaction(after)
                && EventTime.of(before.sourceOffset()).equals(EventTime.of(after.sourceOffset()));
    }

    /** The time of a transaction of which only a part was let through so far. */
    Optional<ClusterTime> cut() {
        return Optional.ofNullable(cut);
    }

    /** The stream begins again, after what was let through: what waits comes again. */
    void begin() {
        waiting = new ArrayList<>();
        waitingBytes = 0;
    }
}
