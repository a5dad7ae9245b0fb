package io.towpath.source;

import io.towpath.connector.Closing;
import io.towpath.connector.PluginVersion;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.ResumePoint;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.InitialCopy;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.ddl.DdlLog;
import io.towpath.source.ddl.DdlWatch;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.ddl.TopicPartitions;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.Rereads;
import io.towpath.source.rules.Rules;
import io.towpath.source.stream.Streaming;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/**
 * A task of {@link MongoSource}. The first resumes the copy where its offsets left it, then Debezium's stream, and so in rounds. The others
 * only read their share of the initial copy.
 */
public final class TowpathSourceTask extends SourceTask {
    /** So many collections that come back are named one by one in the advice, which must name all of them. */
    private static final int MOST_NAMED = 3;

    private static final String SELECTION = "collection.include.list";
    /** For a source that has no primary when the task starts. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private static final String TOO_OLD =
            "schema changes are not captured: change streams report them from MongoDB 6.0 on, with its featureCompatibilityVersion";
    /** Of a task that has nothing to do. */
    private static final long IDLE_MS = 1_000;

    private final BiFunction<SourceSettings, Predicate<String>, Set<String>> captured;
    private Map<String, String> configuration;
    private SourceSettings settings;
    private CopyShare share;
    private SourceMetrics metrics;
    private Emission emission;
    private SourceCluster source;
    private Partitions partitions;
    private Ledger ledger;
    private Progress progress;
    private SnapshotReads reads;
    /** A round of the initial copy; null while the stream runs. */
    private InitialCopy copy;
    /** Null before the first round is read. It stays open between two rounds. */
    private Streaming streaming;
    /** The last round that this task, which is not the first, has ended. */
    private long ended;

    private boolean over;
    /** Of a pipeline without {@link #schema}. */
    private DdlWatch ddl;

    /** Null unless schema changes are captured. */
    private SchemaCapture schema;

    private DebeziumStream debezium;
    /** Records that the start of the task has to emit. */
    private final List<SourceRecord> startRecords = new ArrayList<>();
    /** Whether they say where the stream begins, without a copy: stored before the schemas are read, as a cutover waits for it. */
    private boolean beginsStream;

    /** Connect's. */
    public TowpathSourceTask() {
        this(TowpathSourceTask::inLog);
    }

    /** @param captured which of the selected namespaces the log holds records of */
    TowpathSourceTask(BiFunction<SourceSettings, Predicate<String>, Set<String>> captured) {
        this.captured = captured;
    }

    /** Where Kafka's address is not set, no earlier capture can be seen. */
    private static Set<String> inLog(SourceSettings settings, Predicate<String> selection) {
        if (!settings.rereads().areUsed()) return Set.of();
        return new CapturedLog(settings.name(), settings.rereads().client()).namespaces(selection);
    }

    @Override
    public void start(Map<String, String> properties) {
        configuration = Map.copyOf(properties);
        MongoSource.requirements(configuration).require(); // a connector may be created without being validated
        ExactlyOnce.requireOfWorker(configuration);
        settings = SourceSettings.of(configuration);
        partitions = new Partitions(configuration.get("topic.prefix"));
        share = settings.copy().share();
        metrics = new SourceMetrics(
                configuration.getOrDefault("name", settings.name()), settings.name(), partitions.prefix(), share);
        emission = new Emission(settings, partitions, metrics, context.offsetStorageReader());
        source = new SourceCluster(configuration, settings.name());
        reads = new SnapshotReads(source, settings.copy(), settings.rules());
        source.awaitPrimary(PATIENCE);
        ended = partitions.ended(share.task(), context.offsetStorageReader());
        if (!share.isFirst()) return;
        source.requireFilters(configuration);
        ledger = new Ledger(partitions, context.offsetStorageReader());
        progress = new Progress(settings.name(), partitions, ledger, metrics, settings.rules());
        startSchema();
        String selection = configuration.getOrDefault(SELECTION, "");
        if (!ledger.hasBegun() && isCapturedBefore()) {
            ledger.lose(selection, source.now(), settings.resnapshot());
            startRecords.add(ledger.rootRecord());
            return;
        }
        if (ledger.history().isLost() && !isResnapshotDue()) throw offsetsLost();
        requireRules();
        boolean isBack = false;
        if (!ledger.hasBegun()) begin(selection);
        else if (!ledger.selection().equals(selection)) isBack = reselect(selection);
        if (isResnapshotDue()) resnapshot(selection, isBack);
        // a task may have read its share of the round, and have another share now
        if (ledger.isCopying() && !ledger.isFresh() && !share.isWhole())
            startRecords.add(ledger.beginRound(ledger.start()));
        if (!ledger.isCopying()) ResumePoint.of(streamOffset(), ledger.start()).requireHistory(source);
        if (schema == null)
            ddl = new DdlWatch(
                    source,
                    SourceCluster.selection(configuration),
                    new DdlLog(
                            context.offsetStorageReader().offset(partitions.ddl()),
                            EventTime.of(streamOffset()).orElse(ledger.start())),
                    settings.name());
    }

    /**
     * Records follow the connector's rules from now on. Throws {@link ConnectException} where those before followed others, unless all documents
     * of these collections are about to be read again.
     */
    private void requireRules() {
        String rules = settings.rules().text();
        if (ledger.rules().equals(rules)) return;
        List<String> others = ledger.hasBegun() ? withOtherRules() : List.of();
        if (!others.isEmpty() && !(isResnapshotDue() && others.stream().allMatch(settings.isResnapshot()))) {
            throw new ConnectException(
                    "TWP-RULES-CHANGED: other rules than before leave something else of %s: log and destination still have what the rules before left. `towpath resnapshot PIPELINE%s` reads these documents again"
                            .formatted(CapturedLog.some(others), others.size() <= MOST_NAMED ? only(others) : ""));
        }
        ledger.follow(rules);
        if (ledger.hasBegun()) startRecords.add(ledger.rootRecord());
    }

    private List<String> withOtherRules() {
        Rules before = Rules.stored(ledger.rules());
        return source.namespaces(wasSelected()).stream()
                .filter(namespace -> !settings.rules().leaveTheSame(before, namespace))
                .toList();
    }

    /** By the selection that the connector has captured so far. */
    private Predicate<String> wasSelected() {
        Map<String, String> before = new HashMap<>(configuration);
        before.put(SELECTION, ledger.selection());
        return SourceCluster.selection(before);
    }

    /** Options of `towpath resnapshot`. */
    private static String only(Collection<String> namespaces) {
        return namespaces.stream().map(" --only %s"::formatted).collect(Collectors.joining());
    }

    private boolean isResnapshotDue() {
        return !settings.resnapshot().isEmpty()
                && !ledger.history().resnapshot().equals(settings.resnapshot());
    }

    /** Without offsets. */
    private boolean isCapturedBefore() {
        return !capturedBefore(SourceCluster.selection(configuration)).isEmpty();
    }

    private Set<String> capturedBefore(Predicate<String> selection) {
        return captured.apply(settings, selection);
    }

    private ConnectException offsetsLost() {
        return CapturedLog.lost(
                capturedBefore(SourceCluster.selection(configuration)),
                "the connector's offsets are lost, so that nothing says what is captured",
                "");
    }

    private void startSchema() {
        if (settings.ddl() && source.reportsSchemaChanges()) {
            Optional<Properties> kafka = settings.rereads().areUsed()
                    ? Optional.of(settings.rereads().client())
                    : Optional.empty();
            schema = new SchemaCapture(
                    source,
                    SourceCluster.selection(configuration),
                    new TopicPartitions(settings.name(), configuration, kafka),
                    progress,
                    context.offsetStorageReader());
            return;
        }
        String problem = settings.ddl() ? TOO_OLD : "";
        SchemaCapture.off(progress, context.offsetStorageReader(), problem).ifPresent(startRecords::add);
    }

    /** What has to be emitted before anything else; empty when that is not known yet. */
    private Optional<List<SourceRecord>> beginSchema() throws InterruptedException {
        if (schema == null || schema.isReading()) return Optional.of(List.of());
        if (ledger.isCopying()) return schema.beginCopy();
        return schema.beginStream(
                EventTime.of(streamOffset()).orElseGet(() -> ledger.start().previous()));
    }

    private void begin(String selection) {
        ClusterTime now = source.now();
        if (settings.copies()) {
            ledger.begin(selection, now, source.comparableNamespaces(SourceCluster.selection(configuration)));
        } else {
            ledger.begin(selection, now.next(), List.of());
            ledger.beginStream();
            beginsStream = true;
        }
        ledger.history().skip(settings.resnapshot());
        startRecords.add(ledger.rootRecord());
    }

    /**
     * Re-reads what a resnapshot names: while the stream continues if it can, and otherwise before it restarts. One transaction stores that
     * and deletes the offsets of the stream and of the earlier copy.
     */
    private void resnapshot(String selection, boolean isBack) {
        Predicate<String> included = settings.isResnapshot().and(SourceCluster.selection(configuration));
        ResumePoint point = ResumePoint.of(streamOffset(), ledger.start());
        if (ledger.isStreaming() && !ledger.history().isLost() && !point.isLost(source)) {
            startRecords.addAll(
                    ledger.copyAgain(settings.resnapshot(), source.namespaces(included), source.now(), isBack));
            return;
        }
        List<String> everything = source.comparableNamespaces(SourceCluster.selection(configuration));
        if (!everything.stream().allMatch(settings.isResnapshot())) {
            throw new ConnectException(
                    "TWP-HISTORY-LOST: the changes of all collections since %s are missing: a resnapshot of some would leave the others as they were then. Run `towpath resnapshot PIPELINE` without --only"
                            .formatted(point.time()));
        }
        if (schema != null) schema.restart(source.now());
        startRecords.addAll(ledger.restart(settings.resnapshot(), selection, point.time(), source.now(), everything));
        startRecords.add(partitions.offsetRecord(DebeziumStream.partition(configuration), null, "the stream restarts"));
    }

    private Map<String, Object> streamOffset() {
        return context.offsetStorageReader().offset(DebeziumStream.partition(configuration));
    }

    /**
     * Copies collections that are newly selected, and forgets those that are no longer selected. Returns whether some were captured before:
     * without a resnapshot of them, throws {@link ConnectException}, as a copy does not show what was deleted in the meantime.
     */
    private boolean reselect(String selection) {
        Predicate<String> wasSelected = wasSelected();
        Predicate<String> isSelected = SourceCluster.selection(configuration);
        Set<String> back = capturedBefore(isSelected.and(wasSelected.negate()));
        if (!back.isEmpty()
                && !ledger.history().isLost()
                && !(isResnapshotDue() && back.stream().allMatch(settings.isResnapshot())))
            throw CapturedLog.lost(
                    back,
                    "collections are included again, whose changes were not captured while they were excluded",
                    ledger.isStreaming() && back.size() <= MOST_NAMED ? only(back) : "");
        List<String> added = settings.copies() ? added(isSelected.and(wasSelected.negate())) : List.of();
        List<String> dropped =
                ledger.rows().remembered().stream().filter(isSelected.negate()).toList();
        startRecords.addAll(ledger.reselect(selection, added, dropped));
        if (schema != null) schema.select(isSelected.and(wasSelected.negate()));
        return !back.isEmpty();
    }

    /** While the stream continues, rows are read as of its position, and no event is compared with them. */
    private List<String> added(Predicate<String> isNew) {
        return ledger.isStreaming() ? source.namespaces(isNew) : source.comparableNamespaces(isNew);
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        return whole(() -> emission.of(share.isFirst() ? pollFirst() : pollShare()));
    }

    interface Poll {
        List<SourceRecord> records() throws InterruptedException;
    }

    /**
     * After a retriable error, Connect polls again and stores offsets behind what the failed poll had taken: those events would be missing
     * in the log. So the error ends the task, and the next one reads them again.
     */
    static List<SourceRecord> whole(Poll poll) throws InterruptedException {
        try {
            return poll.records();
        } catch (RetriableException | org.apache.kafka.common.errors.RetriableException error) {
            throw new ConnectException("the task has to read again from its offsets: " + error.getMessage(), error);
        }
    }

    /** Null while the first task has not begun a round, and once this task has read its share of it. */
    private List<SourceRecord> pollShare() throws InterruptedException {
        if (copy == null && !over && Ledger.hasNews(ended, partitions, context.offsetStorageReader())) beginShare();
        if (copy == null) {
            TimeUnit.MILLISECONDS.sleep(IDLE_MS);
            return null;
        }
        List<SourceRecord> records = copy.poll();
        if (copy.isOver()) {
            Closing.all(copy);
            copy = null;
        }
        return records;
    }

    private void beginShare() {
        Ledger stored = new Ledger(partitions, context.offsetStorageReader());
        if (!isBegun(stored)) return;
        over = stored.isStreaming();
        if (over) Closing.all(source);
        if (!stored.isCopying() || stored.round() <= ended) return;
        ended = stored.round();
        Progress shared = new Progress(settings.name(), partitions, stored, metrics, settings.rules());
        copy = new InitialCopy(shared, reads, context.offsetStorageReader());
    }

    /** Whether the offsets are of the copy that the configuration asks for; otherwise the first task is about to begin that. */
    private boolean isBegun(Ledger stored) {
        return stored.hasBegun()
                && stored.selection().equals(configuration.getOrDefault(SELECTION, ""))
                && stored.rules().equals(settings.rules().text())
                && (settings.resnapshot().isEmpty()
                        || settings.resnapshot().equals(stored.history().resnapshot()));
    }

    private List<SourceRecord> pollFirst() throws InterruptedException {
        if (ledger.history().isLost()) {
            // stored first: a resnapshot has to see from the offsets what happened
            if (startRecords.isEmpty()) throw offsetsLost();
            return takeStartRecords();
        }
        if (beginsStream) {
            beginsStream = false;
            return takeStartRecords();
        }
        Optional<List<SourceRecord>> described = beginSchema();
        if (described.isEmpty()) return null;
        startRecords.addAll(0, described.get());
        // the descriptions may have moved the beginning of a copy
        if (!described.get().isEmpty()) startRecords.add(ledger.rootRecord());
        if (!startRecords.isEmpty()) return takeStartRecords();
        Optional<Map<String, Object>> ddlOffset = ddl == null ? Optional.empty() : ddl.dueOffset();
        if (ddlOffset.isPresent()) return List.of(partitions.offsetRecord(partitions.ddl(), ddlOffset.get(), "ddl"));
        if (copy != null && copy.isOver()) {
            Closing.all(copy);
            copy = null;
        }
        if (ledger.isCopying()) {
            if (copy == null) copy = new InitialCopy(progress, reads, context.offsetStorageReader());
            return copy.poll();
        }
        if (streaming == null) streaming = streaming();
        return streaming.poll();
    }

    private List<SourceRecord> takeStartRecords() {
        List<SourceRecord> records = List.copyOf(startRecords);
        startRecords.clear();
        return records;
    }

    private Streaming streaming() {
        Optional<ClusterTime> last = Stream.of(
                        EventTime.of(streamOffset()),
                        Optional.ofNullable(schema).flatMap(SchemaCapture::upto))
                .flatMap(Optional::stream)
                .max(ClusterTime::compareTo);
        // events of the first time are in all rows; and only the stream's second time shows that all of the first have
        // come
        ClusterTime start = ledger.rows().holdsAny() ? ledger.start().previous() : ledger.start();
        debezium = new DebeziumStream(context, configuration, source, start);
        Rereads rereads = new Rereads(
                progress,
                reads,
                settings.rereads(),
                context.offsetStorageReader(),
                SourceCluster.selection(configuration),
                schema);
        return new Streaming(debezium, last, progress, reads, rereads, schema, settings.wholeDocuments());
    }

    @Override
    public void commitRecord(SourceRecord record, RecordMetadata metadata) throws InterruptedException {
        if (debezium != null && DebeziumStream.owns(record)) debezium.commitRecord(record, metadata);
    }

    @Override
    public void commit() throws InterruptedException {
        if (debezium != null) debezium.commit();
    }

    @Override
    public void stop() {
        Closing.all(copy, streaming, debezium, ddl, schema, source, emission, metrics);
    }

    @Override
    public String version() {
        return PluginVersion.current();
    }
}
