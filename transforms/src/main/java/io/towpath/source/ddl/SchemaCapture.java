package io.towpath.source.ddl;

import com.mongodb.MongoException;
import io.towpath.connector.Closing;
import io.towpath.debezium.ResumePoint;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.record.TopicNames;
import io.towpath.source.progress.CollectionCopy;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Progress;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.function.Predicate;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Schema changes of the source as records of the log, each in every partition of the topics that it concerns. They are read exactly as far as
 * the documents' changes, and go before those of the same time.
 */
public final class SchemaCapture implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SchemaCapture.class);
    private static final long PAUSE_MS = 500;

    private final SourceCluster source;
    private final Predicate<String> selection;
    private final TopicPartitions partitions;
    private final Progress progress;
    private final Ledger ledger;
    private final SchemaOffset state;
    private final SchemaRecords records;
    private final Descriptions descriptions;
    /** Namespaces that are captured from now on, and were not before. */
    private Predicate<String> added = namespace -> false;

    private boolean hasAdded;
    /** Null until the connector streams. */
    private SchemaStream stream;

    private ChangePlanner planner;
    private final Queue<PlannedChange> planned = new ArrayDeque<>();

    /** @param captured which namespaces the connector captures */
    public SchemaCapture(
            SourceCluster source,
            Predicate<String> captured,
            TopicPartitions partitions,
            Progress progress,
            OffsetStorageReader reader) {
        this.source = source;
        this.selection = captured.and(SchemaCapture::isUsers);
        this.partitions = partitions;
        this.progress = progress;
        this.ledger = progress.ledger();
        this.state = new SchemaOffset(reader.offset(progress.partitions().schema()));
        this.records = new SchemaRecords(progress, state);
        this.descriptions = new Descriptions(source, selection, partitions, ledger, state, records);
        progress.metrics().schemaError(state.problem());
    }

    /** Whether users made the collection or view, and not the server for itself. */
    private static boolean isUsers(String namespace) {
        return !namespace.startsWith("system.", namespace.indexOf('.') + 1) && !SchemaEvent.isTemporary(namespace);
    }

    /** Whether the server made the collection for itself: its documents are not captured. */
    public static boolean isTemporary(String namespace) {
        return SchemaEvent.isTemporary(namespace);
    }

    /** The offset of a pipeline without schema changes, if it had them before, or if there is something to report. */
    public static Optional<SourceRecord> off(Progress progress, OffsetStorageReader reader, String problem) {
        SchemaOffset state =
                new SchemaOffset(reader.offset(progress.partitions().schema()));
        progress.metrics().schemaError(problem);
        if (!state.isOn() && state.problem().equals(problem)) return Optional.empty();
        state.end();
        state.report(problem);
        return Optional.of(new SchemaRecords(progress, state).offset("schema changes: off"));
    }

    /** Some namespaces were not selected before. */
    public void select(Predicate<String> newlySelected) {
        added = newlySelected;
        hasAdded = true;
    }

    /** Everything is copied again, as history is lost. */
    public void restart(ClusterTime now) {
        state.openRefills().forEach(refill -> state.closeRefills(refill.namespace(), now));
        state.end();
    }

    /** Up to when schema changes are emitted; empty before the stream. */
    public Optional<ClusterTime> upto() {
        return state.upto();
    }

    /**
     * Before an initial copy: describes what existed when the stream begins, unless it is described already, or the copy began without this:
     * then {@link #beginStream} does. Empty when it has to be called again.
     */
    public Optional<List<SourceRecord>> beginCopy() throws InterruptedException {
        if (!state.isOn()) return ledger.isFresh() ? described(descriptions::beforeCopy) : Optional.of(List.of());
        if (!hasAdded) return Optional.of(List.of());
        return described(() -> Optional.of(descriptions.beforeCopy(selection.and(added))));
    }

    public boolean isReading() {
        return stream != null && !hasAdded && state.upto().isPresent();
    }

    /**
     * Begins to read where Debezium's stream is, and describes what exists then, unless it is described already. Empty when it has to be
     * called again.
     */
    public Optional<List<SourceRecord>> beginStream(ClusterTime position) throws InterruptedException {
        Optional<ClusterTime> upto = state.upto();
        if (isReading()) return Optional.of(List.of());
        if (stream == null)
            open(upto.filter(time -> !hasAdded && time.isAfter(position)).orElse(position));
        if (upto.isPresent() && !hasAdded) return Optional.of(List.of());
        Predicate<String> described = upto.isPresent() ? selection.and(added) : selection;
        Optional<List<SourceRecord>> begun = described(() -> descriptions.asOf(stream, described, position));
        planner = new ChangePlanner(source, selection, partitions, stream, state.views());
        return begun;
    }

    /** Empty after a transient error, and when it has to be called again. */
    private Optional<List<SourceRecord>> described(Attempt<List<SourceRecord>> description)
            throws InterruptedException {
        Optional<List<SourceRecord>> begun = attempt(description);
        if (begun.isPresent()) hasAdded = false;
        return begun;
    }

    private void open(ClusterTime position) {
        Optional<ClusterTime> upto = state.upto();
        Predicate<String> newlySelected = added;
        stream = new SchemaStream(
                source,
                position,
                event -> event.concerns(selection)
                        && (upto.isEmpty()
                                || event.time().isAfter(upto.get())
                                // what concerned others is emitted
                                || newlySelected.test(event.namespace())
                                        && (event.to().isEmpty() || newlySelected.test(event.to()))));
        planner = new ChangePlanner(source, selection, partitions, stream, state.views());
    }

    /** Reads the schema changes up to a time. Returns whether all are read; otherwise, call it again. */
    public boolean readUpTo(ClusterTime time) throws InterruptedException {
        return attempt(() -> plan(time)).isPresent();
    }

    private Optional<Boolean> plan(ClusterTime time) throws InterruptedException {
        if (!stream.readUpTo(time)) return Optional.empty();
        while (!stream.events().isEmpty() && !stream.events().element().time().isAfter(time)) {
            if (!planner.next(planned)) return Optional.empty();
        }
        return Optional.of(true);
    }

    private interface Attempt<T> {
        Optional<T> run() throws InterruptedException;
    }

    /** Empty after a transient error. */
    private <T> Optional<T> attempt(Attempt<T> attempt) throws InterruptedException {
        try {
            return attempt.run();
        } catch (MongoException error) {
            if (stream != null) stream.reset();
            if (ReadFault.isInterrupt(error)) return Optional.empty();
            if (stream != null && isLoss(error))
                new ResumePoint(stream.position(), Optional.empty()).requireHistory(source);
            else if (!ReadFault.isTransient(error))
                throw new ConnectException(
                        "schema changes cannot be read at the source: " + ReadFault.message(error), error);
            pause(RetryCause.of(error), ReadFault.message(error));
        } catch (RetriableException error) {
            pause(RetryCause.KAFKA, error.getMessage());
        }
        return Optional.empty();
    }

    private static boolean isLoss(MongoException error) {
        return ServerError.of(error.getCode()).filter(ResumePoint::isLoss).isPresent();
    }

    private void pause(RetryCause cause, String reason) throws InterruptedException {
        progress.metrics().retried(cause, "schema changes: " + reason);
        LOGGER.warn("schema changes have to wait: {}", reason);
        Thread.sleep(PAUSE_MS);
    }

    /** The records of the changes up to a time. Everything before them must be emitted, and nothing later. */
    public List<SourceRecord> take(ClusterTime upto) {
        List<SourceRecord> taken = new ArrayList<>();
        while (isDue(upto)) taken.addAll(emit(planned.remove()));
        return taken;
    }

    /** Whether there are changes up to a time. */
    public boolean isDue(ClusterTime upto) {
        return !planned.isEmpty() && !planned.element().time().isAfter(upto);
    }

    private List<SourceRecord> emit(PlannedChange change) {
        List<SchemaChange> changes = new ArrayList<>(change.changes());
        SchemaChange first = changes.get(0);
        boolean isAhead = !first.isView() && ledger.isAhead(first.namespace(), change.time());
        boolean isOfOthers = first.kind() == Kind.RENAME
                && !first.isView()
                && !progress.rules().selectAlike(first.namespace(), first.to());
        // of a capped collection no rows would follow: nothing would be left of what the destination has
        boolean isRenamedAhead =
                isAhead && first.kind() == Kind.RENAME && change.refilled().isPresent();
        if (isRenamedAhead || isOfOthers) changes.add(again(first, first.to()));
        if (isAhead && first.kind() == Kind.CREATE) return emit(change.again(again(first, first.namespace())));
        List<SourceRecord> effects = new ArrayList<>(ledger.gone(change.gone(), change.time()));
        change.refilled().ifPresent(namespace -> effects.addAll(ledger.refill(namespace)));
        update(change, changes.get(changes.size() - 1).id());
        Map<String, Object> offset = state.offset();
        List<SourceRecord> emitted = new ArrayList<>();
        for (SchemaChange each : changes) {
            LOGGER.info("schema change {}: {} {} {}", each.id(), each.kind().text(), each.namespace(), each.to());
            emitted.addAll(records.of(each, change.time(), change.atMs(), offset));
        }
        emitted.addAll(effects);
        progress.metrics().schemaChanged(changes.size());
        return emitted;
    }

    /**
     * Rows of the collection are from later times, or documents of it are pending, or its new name has another filter: what the destination
     * has of them is of no use.
     */
    private SchemaChange again(SchemaChange change, String namespace) {
        String topic = TopicNames.of(progress.name(), namespace);
        int end = change.id().length() - change.namespace().length();
        return new SchemaChange(
                change.id().substring(0, end) + namespace,
                Kind.REPLACE,
                namespace,
                "",
                false,
                change.options(),
                change.indexes(),
                false,
                Map.of(topic, change.partitions().get(topic)));
    }

    private void update(PlannedChange change, String id) {
        state.passed(change.time());
        state.views().clear();
        state.views().addAll(change.views());
        change.gone().forEach(namespace -> state.closeRefills(namespace, change.time()));
        change.refilled().ifPresent(namespace -> state.openRefill(namespace, id, change.time()));
        boolean isFixed =
                change.gone().stream().anyMatch(namespace -> state.problem().startsWith(namespace + " "));
        if (isFixed || !change.problem().isEmpty()) report(change.problem());
    }

    private void report(String problem) {
        if (!problem.isEmpty()) LOGGER.error(problem);
        state.report(problem);
        progress.metrics().schemaError(problem);
    }

    /**
     * Confirms copies, and marks the ends of rows that follow a change. A read finds nothing in a collection that has another name by then,
     * or none: so rows are of the stream's collection, and complete, only if nothing of the kind is to come.
     *
     * @param time that of the last record
     */
    public List<SourceRecord> completed(ClusterTime time) throws InterruptedException {
        Map<String, CollectionCopy> read = ledger.rows().unconfirmed();
        List<SchemaOffset.Refill> copied =
                state.openRefills().stream().filter(this::isCopied).toList();
        if (read.isEmpty() && copied.isEmpty()) return List.of();
        Map<String, Map<String, Integer>> topics = new HashMap<>();
        if (attempt(() -> readUpToNow(copied, topics)).isEmpty()) return List.of();
        read.forEach((namespace, copy) -> {
            if (!willBeGone(namespace)) copy.confirm();
        });
        List<SourceRecord> marks = new ArrayList<>();
        for (SchemaOffset.Refill refill : copied) {
            if (willBeGone(refill.namespace())) continue;
            long now = System.currentTimeMillis();
            SchemaChange complete = new SchemaChange(
                    SchemaRecords.id(time, now, refill.namespace()),
                    Kind.COMPLETE,
                    refill.namespace(),
                    refill.id(),
                    false,
                    new BsonDocument(),
                    List.of(),
                    false,
                    topics.get(refill.namespace()));
            state.closeRefills(refill.namespace(), time);
            marks.addAll(records.of(complete, time, now, state.offset()));
        }
        return marks;
    }

    /**
     * Ends the copy of a capped collection, of which the log will not have the rows: no server reads it as of a known time.
     *
     * @param time everything up to then is emitted, and no single document was read later
     */
    public List<SourceRecord> endCopy(String namespace, ClusterTime time) {
        List<SourceRecord> ended = new ArrayList<>(ledger.gone(List.of(namespace), time.next()));
        state.closeRefills(namespace, time);
        report(ChangePlanner.cappedProblem(namespace));
        ended.add(records.offset("schema changes: no rows of " + namespace));
        return ended;
    }

    private boolean isCopied(SchemaOffset.Refill refill) {
        Optional<CollectionCopy> copy = ledger.rows().copies().get(refill.namespace());
        return copy == null || copy.filter(CollectionCopy::isDone).isPresent();
    }

    /** @param topics gets the partitions of each refill's topic, by namespace */
    private Optional<Boolean> readUpToNow(List<SchemaOffset.Refill> refills, Map<String, Map<String, Integer>> topics)
            throws InterruptedException {
        for (SchemaOffset.Refill refill : refills)
            topics.put(refill.namespace(), partitions.of(refill.namespace(), ""));
        return stream.readUpTo(source.now()) ? Optional.of(true) : Optional.empty();
    }

    /**
     * Whether the source may have dropped or renamed a collection by a change that is not emitted yet: a read of it finds nothing then, as
     * of any time. Empty while that is unknown.
     */
    public Optional<Boolean> mayBeGone(String namespace) throws InterruptedException {
        return attempt(() -> stream.readUpTo(source.now()) ? Optional.of(willBeGone(namespace)) : Optional.empty());
    }

    private boolean willBeGone(String namespace) {
        return planned.stream().anyMatch(change -> change.gone().contains(namespace))
                || stream.events().stream()
                        .anyMatch(event -> (event.is(SchemaEvent.DROP) || event.is(SchemaEvent.RENAME))
                                && (event.namespace().equals(namespace)
                                        || event.to().equals(namespace)));
    }

    /** The offset that has to be stored now, if any: everything up to {@code time} is emitted. */
    public Optional<SourceRecord> dueOffset(ClusterTime time) {
        state.passed(time);
        return records.isOffsetDue() ? Optional.of(records.offset("schema changes: up to " + time)) : Optional.empty();
    }

    @Override
    public void close() {
        Closing.all(stream, partitions);
    }
}
