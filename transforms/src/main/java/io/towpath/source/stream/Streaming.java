package io.towpath.source;

import io.towpath.connector.Closing;
import io.towpath.record.ClusterTime;
import io.towpath.transform.DebeziumToRecord;
import io.towpath.transform.EventTime;
import io.towpath.transform.OversizedEvent;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's stream, without the events that a row of the copy holds already. Between two events of different cluster times, documents
 * are read again as they were there: every event of an earlier time is out, and none of a later one.
 */
final class Streaming implements Stage {
    /** For so long a boundary may hold up the stream. */
    private static final long BOUNDARY_NS = Duration.ofSeconds(1).toNanos();

    private static final long PAUSE_MS = 500;

    private final DebeziumStream debezium;
    private final DebeziumToRecord toRecord = new DebeziumToRecord();
    private final Ledger ledger;
    private final ReadAgain readAgain;
    private final ReadInstead readInstead;
    private final CaptureWatch watch;
    private final SourceMetrics metrics;
    private final int namespaceAt;
    /** The time of the last event that is out; null before the first. */
    private ClusterTime last;

    private List<SourceRecord> held = List.of();
    private long heldUntil;

    /**
     * @param debezium not closed by this
     * @param last the time of the last event that an earlier task has put out, if any
     */
    Streaming(
            DebeziumStream debezium,
            Optional<ClusterTime> last,
            Ledger ledger,
            ReadAgain readAgain,
            SourceCluster source,
            SourceSettings settings,
            SourceMetrics metrics) {
        this.debezium = debezium;
        this.last = last.orElse(null);
        this.ledger = ledger;
        this.readAgain = readAgain;
        this.readInstead = new ReadInstead(source, ledger, settings, metrics);
        this.watch = new CaptureWatch(source, ledger, metrics);
        this.metrics = metrics;
        this.namespaceAt = settings.name().length() + 1;
        toRecord.configure(Map.of(
                DebeziumToRecord.TOPIC_PREFIX,
                settings.name(),
                DebeziumToRecord.WHOLE_DOCUMENTS,
                Boolean.toString(settings.wholeDocuments())));
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> batch = held.isEmpty() ? debezium.poll() : held;
        if (batch == null || batch.isEmpty()) return watched();
        boolean isNew = held.isEmpty();
        held = List.of();
        List<SourceRecord> records = new ArrayList<>();
        if (isWatched()) records.add(ledger.rootRecord());
        readAgain.passedOver().ifPresent(records::add);
        int boundary = readAgain.isPending() && (isNew || System.nanoTime() < heldUntil) ? boundary(batch) : -1;
        if (boundary < 0) {
            int emitted = emit(batch, records);
            held = batch.subList(emitted, batch.size());
            return records.isEmpty() ? null : records;
        }
        ClusterTime moment =
                EventTime.of(batch.get(boundary).sourceOffset()).orElseThrow().previous();
        int emitted = emit(batch.subList(0, boundary), records);
        if (emitted < boundary) {
            held = batch.subList(emitted, batch.size());
            return records.isEmpty() ? null : records;
        }
        if (isNew) heldUntil = System.nanoTime() + BOUNDARY_NS;
        records.addAll(readAgain.read(moment));
        held = batch.subList(boundary, batch.size());
        return records;
    }

    /** The first record that is later than what is out, where no row of the copy is later still; -1 if there is none. */
    private int boundary(List<SourceRecord> batch) {
        for (int index = 0; index < batch.size(); index++) {
            Optional<ClusterTime> time = EventTime.of(batch.get(index).sourceOffset());
            if (time.isEmpty() || last != null && !time.get().isAfter(last)) continue;
            boolean isPastRows = !ledger.holdsAny() || time.get().isAfter(ledger.largestTime());
            return isPastRows ? index : -1;
        }
        return -1;
    }

    /** Returns how many of the batch are out; fewer than all when a document cannot be read yet in place of the next. */
    private int emit(List<SourceRecord> batch, List<SourceRecord> into) throws InterruptedException {
        long events = 0;
        int emitted = 0;
        ClusterTime stored = null;
        for (SourceRecord record : batch) {
            Optional<ClusterTime> time = EventTime.of(record.sourceOffset());
            Optional<List<SourceRecord>> records = compact(record, time);
            if (records.isEmpty()) {
                Thread.sleep(PAUSE_MS);
                break;
            }
            emitted++;
            events += records.get().size();
            into.addAll(records.get());
            if (time.isPresent() && (last == null || time.get().isAfter(last))) last = time.get();
            // the offset of what emits nothing is not stored: a restart would bring again what a row holds that is
            // forgotten
            if (time.isPresent() && !records.get().isEmpty()) stored = time.get();
        }
        metrics.streamed(events);
        if (stored != null) into.addAll(ledger.forget(stored));
        return emitted;
    }

    /** What one record of Debezium's becomes; empty when that cannot be told yet. */
    private Optional<List<SourceRecord>> compact(SourceRecord record, Optional<ClusterTime> time) {
        Optional<OversizedEvent> oversized = OversizedEvent.in(record);
        if (oversized.isPresent()) {
            OversizedEvent event = oversized.get();
            if (!ledger.holds(event.namespace(), event.key(), event.time())) return readInstead.of(record, event);
            metrics.dropped();
            return Optional.of(List.of());
        }
        SourceRecord compact = toRecord.apply(record);
        if (compact == null) return Optional.of(List.of());
        boolean isChange = !compact.headers().isEmpty();
        if (isChange && isHeld(compact, time)) {
            metrics.dropped();
            return Optional.of(List.of());
        }
        return Optional.of(List.of(compact));
    }

    private boolean isWatched() {
        return last != null && watch.look(last);
    }

    private List<SourceRecord> watched() {
        return isWatched() ? List.of(ledger.rootRecord()) : null;
    }

    private boolean isHeld(SourceRecord record, Optional<ClusterTime> time) {
        return ledger.holdsAny()
                && time.isPresent()
                && ledger.holds(record.topic().substring(namespaceAt), (byte[]) record.key(), time.get());
    }

    @Override
    public boolean isOver() {
        return false;
    }

    @Override
    public void close() {
        Closing.all(toRecord, readAgain);
    }
}
