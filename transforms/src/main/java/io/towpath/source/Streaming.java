package io.towpath.source;

import io.debezium.connector.mongodb.MongoDbConnectorTask;
import io.towpath.record.ClusterTime;
import io.towpath.transform.DebeziumToRecord;
import io.towpath.transform.EventTime;
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

    private final MongoDbConnectorTask debezium;
    private final DebeziumToRecord toRecord = new DebeziumToRecord();
    private final Ledger ledger;
    private final ReadAgain readAgain;
    private final SourceMetrics metrics;
    private final int namespaceAt;
    /** The time of the last event that is out; null before the first. */
    private ClusterTime last;

    private List<SourceRecord> held = List.of();
    private long heldUntil;

    /**
     * @param debezium started; not stopped by this
     * @param last the time of the last event that an earlier task has put out, if any
     */
    Streaming(
            MongoDbConnectorTask debezium,
            Optional<ClusterTime> last,
            Ledger ledger,
            ReadAgain readAgain,
            SourceSettings settings,
            SourceMetrics metrics) {
        this.debezium = debezium;
        this.last = last.orElse(null);
        this.ledger = ledger;
        this.readAgain = readAgain;
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
        if (batch == null || batch.isEmpty()) return null;
        boolean isNew = held.isEmpty();
        held = List.of();
        List<SourceRecord> records = new ArrayList<>();
        readAgain.passedOver().ifPresent(records::add);
        int boundary = readAgain.isPending() && (isNew || System.nanoTime() < heldUntil) ? boundary(batch) : -1;
        if (boundary < 0) {
            emit(batch, records);
            return records;
        }
        ClusterTime moment =
                EventTime.of(batch.get(boundary).sourceOffset()).orElseThrow().previous();
        emit(batch.subList(0, boundary), records);
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
            boolean isPastRows = ledger.copies().isEmpty() || time.get().isAfter(ledger.largestTime());
            return isPastRows ? index : -1;
        }
        return -1;
    }

    private void emit(List<SourceRecord> batch, List<SourceRecord> into) {
        long events = 0;
        for (SourceRecord record : batch) {
            Optional<ClusterTime> time = EventTime.of(record.sourceOffset());
            if (time.isPresent() && (last == null || time.get().isAfter(last))) last = time.get();
            SourceRecord compact = toRecord.apply(record);
            if (compact == null) continue;
            boolean isChange = !compact.headers().isEmpty();
            if (isChange && isHeld(compact, time)) {
                metrics.dropped();
                continue;
            }
            events++;
            into.add(compact);
        }
        metrics.streamed(events);
        if (last != null) into.addAll(ledger.forget(last));
    }

    private boolean isHeld(SourceRecord record, Optional<ClusterTime> time) {
        return !ledger.copies().isEmpty()
                && time.isPresent()
                && ledger.holds(record.topic().substring(namespaceAt), (byte[]) record.key(), time.get());
    }

    @Override
    public boolean isOver() {
        return false;
    }

    @Override
    public void close() {
        toRecord.close();
        readAgain.close();
    }
}
