package io.towpath.source.stream;

import io.towpath.connector.Closing;
import io.towpath.debezium.DebeziumEvent;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.DebeziumToRecord;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.OversizedEvent;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.OplogWatch;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Phase;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.OversizedRead;
import io.towpath.source.reread.Rereads;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's stream, without the events that a row of the copy holds already. Between two events of different cluster times it re-reads
 * documents as of that boundary: every earlier event is emitted, and no later one.
 */
public final class Streaming implements Phase {
    /** How long a boundary may hold up the stream. */
    private static final long BOUNDARY_NS = Duration.ofSeconds(1).toNanos();

    private static final long PAUSE_MS = 500;

    private final DebeziumStream debezium;
    private final DebeziumToRecord toRecord = new DebeziumToRecord();
    private final Ledger ledger;
    private final Rereads rereads;
    private final OversizedRead oversizedRead;
    private final OplogWatch watch;
    private final SourceMetrics metrics;
    private final int namespaceAt;
    /** The time of the last emitted event; null before the first. */
    private ClusterTime last;

    private List<SourceRecord> held = List.of();
    private long heldUntil;

    /**
     * @param debezium not closed by this
     * @param last the time of the last event that an earlier task emitted, if any
     */
    public Streaming(
            DebeziumStream debezium,
            Optional<ClusterTime> last,
            Progress progress,
            SnapshotReads reads,
            Rereads rereads,
            boolean wholeDocuments) {
        this.debezium = debezium;
        this.last = last.orElse(null);
        this.ledger = progress.ledger();
        this.rereads = rereads;
        this.oversizedRead = new OversizedRead(progress, reads);
        this.watch = new OplogWatch(progress, reads);
        this.metrics = progress.metrics();
        this.namespaceAt = progress.name().length() + 1;
        toRecord.configure(Map.of(
                DebeziumToRecord.TOPIC_PREFIX,
                progress.name(),
                DebeziumToRecord.WHOLE_DOCUMENTS,
                Boolean.toString(wholeDocuments)));
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> batch = held.isEmpty() ? debezium.poll() : held;
        List<SourceRecord> records = new ArrayList<>();
        if (last != null && watch.updateCapture(last)) records.add(ledger.rootRecord());
        if (batch == null || batch.isEmpty()) return records.isEmpty() ? null : records;
        boolean isNew = held.isEmpty();
        held = List.of();
        rereads.skipped().ifPresent(records::add);
        int boundary = rereads.isPending() && (isNew || System.nanoTime() < heldUntil) ? boundary(batch) : -1;
        int emitted = emit(boundary < 0 ? batch : batch.subList(0, boundary), records);
        held = batch.subList(emitted, batch.size());
        if (emitted == boundary) {
            if (isNew) heldUntil = System.nanoTime() + BOUNDARY_NS;
            ClusterTime next = EventTime.of(held.get(0).sourceOffset()).orElseThrow();
            records.addAll(rereads.read(next.previous()));
        }
        return records.isEmpty() ? null : records;
    }

    /** The first record that is later than all emitted ones; -1 if there is none, or if a row of the copy is later still. */
    private int boundary(List<SourceRecord> batch) {
        for (int index = 0; index < batch.size(); index++) {
            Optional<ClusterTime> time = EventTime.of(batch.get(index).sourceOffset());
            if (time.isEmpty() || last != null && !time.get().isAfter(last)) continue;
            boolean isPastRows = !ledger.rows().holdsAny() || time.get().isAfter(ledger.largestTime());
            return isPastRows ? index : -1;
        }
        return -1;
    }

    /** Returns how many of the batch are emitted: fewer than all when a document in place of an oversized event cannot be read yet. */
    private int emit(List<SourceRecord> batch, List<SourceRecord> into) throws InterruptedException {
        long events = 0;
        int emitted = 0;
        ClusterTime stored = null;
        for (SourceRecord record : batch) {
            Optional<ClusterTime> time = EventTime.of(record.sourceOffset());
            Optional<List<SourceRecord>> records = convert(record, time);
            if (records.isEmpty()) {
                Thread.sleep(PAUSE_MS);
                break;
            }
            emitted++;
            events += records.get().size();
            into.addAll(records.get());
            if (time.isPresent() && (last == null || time.get().isAfter(last))) last = time.get();
            // Connect stores no offset of an event that emits nothing: the event comes again after a restart, and then
            // its row has to be known
            if (time.isPresent() && !records.get().isEmpty()) stored = time.get();
        }
        metrics.streamed(events);
        if (stored != null) into.addAll(ledger.forget(stored));
        return emitted;
    }

    /** What one of Debezium's records becomes; empty when its document cannot be read yet. */
    private Optional<List<SourceRecord>> convert(SourceRecord record, Optional<ClusterTime> time) {
        Optional<DebeziumEvent> event = toRecord.event(record);
        if (event.isPresent() && event.get().isOversized()) {
            OversizedEvent oversized = OversizedEvent.of(event.get());
            boolean isHeld = ledger.rows().holds(oversized.namespace(), oversized.key(), oversized.time());
            return isHeld ? dropped() : oversizedRead.of(record, oversized);
        }
        SourceRecord converted = toRecord.apply(record, event);
        if (converted == null) return Optional.of(List.of());
        boolean isChange = !converted.headers().isEmpty();
        return isChange && isHeld(converted, time) ? dropped() : Optional.of(List.of(converted));
    }

    private Optional<List<SourceRecord>> dropped() {
        metrics.dropped();
        return Optional.of(List.of());
    }

    private boolean isHeld(SourceRecord record, Optional<ClusterTime> time) {
        return ledger.rows().holdsAny()
                && time.isPresent()
                && ledger.rows().holds(record.topic().substring(namespaceAt), (byte[]) record.key(), time.get());
    }

    @Override
    public void close() {
        Closing.all(toRecord, rereads);
    }
}
