package io.towpath.source.stream;

import com.mongodb.MongoException;
import io.towpath.connector.Closing;
import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.debezium.DebeziumEvent;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.DebeziumToRecord;
import io.towpath.debezium.EventKey;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.record.BsonElements;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.OplogWatch;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.EventDocument;
import io.towpath.source.reread.Rereads;
import io.towpath.source.rules.Mask;
import io.towpath.source.rules.Rules;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's stream, without the events that a row of the copy holds already. Between two events of different cluster times it re-reads
 * documents as of that boundary: every earlier event is emitted, and no later one.
 */
public final class Streaming implements AutoCloseable {
    /** How long a boundary may hold up the stream. */
    private static final long BOUNDARY_NS = Duration.ofSeconds(1).toNanos();

    private static final long PAUSE_MS = 500;

    private final DebeziumStream debezium;
    private final DebeziumToRecord toRecord = new DebeziumToRecord();
    private final Partitions partitions;
    private final Ledger ledger;
    private final Rereads rereads;
    private final EventDocument eventDocument;
    private final ChangedDocuments changed;
    private final Heartbeats heartbeats = new Heartbeats(System::nanoTime);
    private final SourceCluster source;
    private final OplogWatch watch;
    private final SourceMetrics metrics;
    private final Rules rules;
    private final SchemaCapture schema;
    private final int namespaceAt;
    /** The time of the last emitted event; null before the first. */
    private ClusterTime last;
    /** The last of Debezium's records that are emitted or dropped; null before the first. */
    private SourceRecord passed;

    private List<SourceRecord> held = List.of();
    private long heldUntil;
    /** Between two rounds of the copy: up to when the stream runs at least; null until that is known. */
    private ClusterTime end;

    /**
     * @param debezium not closed by this
     * @param last the time of the last event that an earlier task emitted, if any
     * @param schema null unless schema changes are captured; not closed by this
     */
    public Streaming(
            DebeziumStream debezium,
            Optional<ClusterTime> last,
            Progress progress,
            SnapshotReads reads,
            Rereads rereads,
            SchemaCapture schema,
            boolean wholeDocuments) {
        this.debezium = debezium;
        this.last = last.orElse(null);
        this.partitions = progress.partitions();
        this.ledger = progress.ledger();
        this.rereads = rereads;
        this.schema = schema;
        this.eventDocument = new EventDocument(progress, reads, schema);
        this.changed = new ChangedDocuments(progress, rereads, last.orElseGet(ledger::start));
        this.source = reads.source();
        this.watch = new OplogWatch(progress, reads);
        this.metrics = progress.metrics();
        this.rules = progress.rules();
        this.namespaceAt = progress.name().length() + 1;
        toRecord.configure(Map.of(
                DebeziumToRecord.TOPIC_PREFIX,
                progress.name(),
                DebeziumToRecord.WHOLE_DOCUMENTS,
                Boolean.toString(wholeDocuments)));
    }

    /** Records of one transaction; null when there are none yet. Between two rounds of the copy, the last one begins the next round. */
    public List<SourceRecord> poll() throws InterruptedException {
        if (changed.isOpen()) {
            List<SourceRecord> rest = new ArrayList<>();
            emitChanged(rest);
            return rest.isEmpty() ? null : rest;
        }
        List<SourceRecord> batch = held.isEmpty() ? debezium.poll() : held;
        List<SourceRecord> records = new ArrayList<>();
        if (last != null && watch.update(last)) records.add(ledger.rootRecord());
        if (batch == null || batch.isEmpty()) return records.isEmpty() ? null : records;
        if (!isSchemaRead(batch)) {
            held = batch;
            heldUntil = System.nanoTime() + BOUNDARY_NS;
            return records.isEmpty() ? null : records;
        }
        boolean isNew = held.isEmpty();
        held = List.of();
        rereads.skipped().ifPresent(records::add);
        boolean isReread = rereads.isPending() && (isNew || System.nanoTime() < heldUntil);
        int boundary = -1;
        if (isReread) boundary = boundary(batch, debezium.start());
        else if (isNearRound()) boundary = boundary(batch, end);
        int emitted = emit(batch, boundary < 0 ? batch.size() : boundary, records);
        held = batch.subList(emitted, batch.size());
        if (emitted == boundary && !changed.isOpen()) {
            if (isNew) heldUntil = System.nanoTime() + BOUNDARY_NS;
            ClusterTime position = EventTime.before(held.get(0).sourceOffset()).orElseThrow();
            if (!emitSchemaChanges(position, records)) return records.isEmpty() ? null : records;
            // an event before it may have been replaced by a later read
            List<SourceRecord> reread = isPastRows(position) ? rereads.read(position) : List.of();
            records.addAll(reread);
            // a row holds changes that were dropped because it was pending: they must not come again after a restart
            if (!reread.isEmpty()) storePosition("re-read", records);
            changed.passed(position);
            complete(position, records);
            if (isNearRound() && !end.isAfter(position)) beginRound(position, records);
        } else if (last != null) {
            complete(last, records);
        }
        if (last != null && schema != null) schema.dueOffset(last).ifPresent(records::add);
        if (emitted > 0 && last != null) ledger.open(open(), last).ifPresent(records::add);
        return records.isEmpty() ? null : records;
    }

    /** The time of a transaction of which only a part is emitted: it is too large, or a document in it cannot be read yet. */
    private Optional<ClusterTime> open() {
        if (held.isEmpty()) return debezium.cut();
        return EventTime.of(held.get(0).sourceOffset()).filter(time -> time.equals(last));
    }

    /** Whether all schema changes up to the last record are read. */
    private boolean isSchemaRead(List<SourceRecord> batch) throws InterruptedException {
        if (schema == null) return true;
        for (int index = batch.size() - 1; index >= 0; index--) {
            Optional<ClusterTime> time = EventTime.of(batch.get(index).sourceOffset());
            if (time.isPresent()) return schema.readUpTo(time.get());
        }
        return true;
    }

    /**
     * Emits the schema changes up to a time; all earlier events must be emitted. Returns whether it has: not before changed documents are all
     * read, which must not follow a change that takes their collection.
     */
    private boolean emitSchemaChanges(ClusterTime upto, List<SourceRecord> into) throws InterruptedException {
        if (schema == null || !schema.isDue(upto)) return true;
        if (last != null) emitChanged(into);
        if (changed.isOpen()) return false;
        into.addAll(schema.take(upto));
        // events of a collection that is gone now were dropped, as its rows held them: they must not come after a
        // restart
        storePosition("schema changes", into);
        ClusterTime emitted = schema.upto().orElseThrow();
        if (last == null || emitted.isAfter(last)) last = emitted;
        return true;
    }

    private void storePosition(String text, List<SourceRecord> into) {
        if (passed != null) into.add(partitions.offsetRecord(passed.sourcePartition(), offsetOf(passed), text));
    }

    /**
     * Whether the next round may begin at the next boundary. The stream runs up to the source's present: otherwise, where the rows of a round
     * are all of its beginning, it would lag more with each round.
     */
    private boolean isNearRound() throws InterruptedException {
        if (!ledger.isCatchingUp()) return false;
        try {
            if (end == null) end = source.now(ledger.start());
        } catch (MongoException error) {
            if (!ReadFault.isTransient(error) && !ReadFault.isInterrupt(error)) throw error;
            Thread.sleep(PAUSE_MS);
        }
        return end != null;
    }

    /** The oplog has to reach back to the stored position until the next round ends. */
    private void beginRound(ClusterTime position, List<SourceRecord> into) {
        end = null;
        storePosition("round", into);
        into.add(ledger.beginRound(position));
    }

    private void complete(ClusterTime time, List<SourceRecord> into) throws InterruptedException {
        if (schema != null) into.addAll(schema.completed(time));
    }

    /**
     * The first record that follows all events up to a time, of which no later one is emitted; -1 if there is none, or if a row of the copy is
     * later.
     *
     * @param earliest the time is not earlier
     */
    private int boundary(List<SourceRecord> batch, ClusterTime earliest) {
        for (int index = 0; index < batch.size(); index++) {
            Optional<ClusterTime> before = EventTime.before(batch.get(index).sourceOffset());
            if (before.isEmpty() || earliest.isAfter(before.get())) continue;
            if (last != null && last.isAfter(before.get())) continue;
            // the first heartbeat has the time at which the stream begins, and says nothing about events of that time
            if (!before.get().isAfter(debezium.start())) continue;
            return isPastRows(before.get()) ? index : -1;
        }
        return -1;
    }

    private boolean isPastRows(ClusterTime position) {
        return !ledger.rows().holdsAny() || !ledger.largestTime().isAfter(position);
    }

    /** Returns how many of the first records are emitted: fewer than all when a document in place of an event cannot be read yet. */
    private int emit(List<SourceRecord> batch, int first, List<SourceRecord> into) throws InterruptedException {
        long events = 0;
        int emitted = 0;
        ClusterTime storedTime = null;
        for (SourceRecord record : batch.subList(0, first)) {
            Optional<ClusterTime> time = EventTime.of(record.sourceOffset());
            if (time.isPresent() && !emitSchemaChanges(time.get(), into)) break;
            Optional<List<SourceRecord>> records = convert(record, time);
            if (records.isEmpty()) {
                Thread.sleep(PAUSE_MS);
                break;
            }
            emitted++;
            passed = record;
            events += records.get().size();
            into.addAll(records.get());
            if (time.isPresent() && (last == null || time.get().isAfter(last))) last = time.get();
            // Connect stores no offset of an event that emits nothing: the event comes again after a restart, and then
            // its row has to be known
            if (records.get().isEmpty()) continue;
            heartbeats.emitted(record);
            if (time.isPresent()) storedTime = time.get();
        }
        metrics.streamed(events);
        boolean isDue = last != null && !changed.isOpen() && hasReachedLast(batch.subList(emitted, batch.size()));
        if (isDue && emitChanged(into)) storedTime = last;
        into.addAll(ledger.newPending());
        if (storedTime != null) into.addAll(ledger.forget(storedTime, schema != null));
        ledger.newDocuments().ifPresent(into::add);
        return emitted;
    }

    /**
     * Whether the stream has passed every event that precedes {@link #last}. It has not at first where it began again after an error, or where
     * the schema changes were read further than the stream was: what is emitted as of then would be behind the offset that is stored with it.
     *
     * @param next the records that follow
     */
    private boolean hasReachedLast(List<SourceRecord> next) {
        Optional<ClusterTime> at = Optional.ofNullable(passed).flatMap(record -> EventTime.of(record.sourceOffset()));
        Optional<ClusterTime> before =
                next.stream().findFirst().flatMap(record -> EventTime.before(record.sourceOffset()));
        return Stream.of(at, before).flatMap(Optional::stream).anyMatch(time -> !last.isAfter(time));
    }

    /** Emits changed documents of collections of which only some leave, as of the last event. Returns whether there are any. */
    private boolean emitChanged(List<SourceRecord> into) throws InterruptedException {
        List<SourceRecord> records = changed.read(last);
        if (records.isEmpty()) return false;
        into.addAll(records);
        storePosition("changed documents", into);
        return true;
    }

    /** What one of Debezium's records becomes; empty when its document cannot be read yet. */
    private Optional<List<SourceRecord>> convert(SourceRecord record, Optional<ClusterTime> time)
            throws InterruptedException {
        if (heartbeats.isIdle(record)) return Optional.of(List.of());
        Optional<DebeziumEvent> event = toRecord.event(record);
        if (event.isPresent() && event.get().needsDocument()) {
            EventKey key = EventKey.of(event.get());
            if (isLeftOut(key.namespace())) return Optional.of(List.of());
            boolean isHeld = ledger.holds(key.namespace(), key.key(), key.time());
            if (isHeld) return dropped();
            if (!changed.isOf(key.namespace())) return eventDocument.of(record, key);
            changed.take(key.namespace(), key.key(), key.time());
            return Optional.of(List.of());
        }
        SourceRecord converted = toRecord.apply(record, event);
        if (converted == null) return Optional.of(List.of());
        boolean isChange = !converted.headers().isEmpty();
        if (isChange && isLeftOut(namespace(converted))) return Optional.of(List.of());
        if (!isChange) return Optional.of(List.of(converted));
        if (isHeld(converted, time)) return dropped();
        if (!changed.isOf(namespace(converted)))
            return Optional.of(left(converted).stream().toList());
        byte[] key = (byte[]) converted.key();
        if (isUpdate(converted))
            changed.take(namespace(converted), key, time.orElseThrow(), (byte[]) converted.value(), left(converted));
        else changed.take(namespace(converted), key, time.orElseThrow());
        return Optional.of(List.of());
    }

    /** What becomes of a change; empty if nothing is left of it. */
    private Optional<SourceRecord> left(SourceRecord record) {
        return masked(record).map(this::marked);
    }

    /** The record as the rules leave it; empty if nothing is left of an update. */
    private Optional<SourceRecord> masked(SourceRecord record) {
        if (!(record.value() instanceof byte[] value)) return Optional.of(record);
        Mask mask = rules.of(namespace(record));
        byte[] left = isUpdate(record) ? mask.ofUpdate(value) : mask.ofDocument(value);
        if (left == null) return Optional.empty();
        return Optional.of(left == value ? record : LogRecord.with(record, left));
    }

    /** The record; marked if it is an update that may rightly find no document at the destination, as its row follows. */
    private SourceRecord marked(SourceRecord record) {
        byte[] key = (byte[]) record.key();
        String namespace = namespace(record);
        boolean rowFollows = schema != null
                ? !ledger.rows().isConfirmed(namespace)
                : ledger.rows().rowFollows(namespace, key);
        if (!rowFollows || !isUpdate(record)) return record;
        return LogRecord.with(record, TextHeaders.withRowFollows(record.headers()));
    }

    private static boolean isUpdate(SourceRecord record) {
        return record.value() instanceof byte[] value
                && BsonElements.atId(value).isEmpty();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> offsetOf(SourceRecord record) {
        return (Map<String, Object>) record.sourceOffset();
    }

    private Optional<List<SourceRecord>> dropped() {
        metrics.dropped();
        return Optional.of(List.of());
    }

    private boolean isHeld(SourceRecord record, Optional<ClusterTime> time) {
        return ledger.rows().holdsAny()
                && time.isPresent()
                && ledger.holds(namespace(record), (byte[]) record.key(), time.get());
    }

    /**
     * Whether the collection is Towpath's own, which Debezium's filter may include, or the server renames it once it has all documents; they
     * are read then.
     */
    private boolean isLeftOut(String namespace) {
        return SourceCluster.isBookkeeping(namespace) || schema != null && SchemaCapture.isTemporary(namespace);
    }

    private String namespace(SourceRecord record) {
        return record.topic().substring(namespaceAt);
    }

    @Override
    public void close() {
        Closing.all(toRecord, rereads);
    }
}
