package io.towpath.source;

import io.debezium.connector.mongodb.MongoDbConnectorTask;
import io.towpath.connector.Closing;
import io.towpath.connector.Requirements;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.ResumePoint;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.InitialCopy;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.ddl.DdlLog;
import io.towpath.source.ddl.DdlWatch;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Phase;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.reread.Rereads;
import io.towpath.source.stream.Streaming;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** The task of {@link MongoSource}: resumes the copy where its offsets left it, then Debezium's stream. */
public final class MongoSourceTask extends SourceTask {
    private static final String SELECTION = "collection.include.list";
    /** For a source that has no primary when the task starts. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private Map<String, String> configuration;
    private SourceSettings settings;
    private SourceMetrics metrics;
    private RecordSizeLimit sizeLimit;
    private SourceCluster source;
    private Partitions partitions;
    private Ledger ledger;
    private Progress progress;
    private SnapshotReads reads;
    private Phase phase;
    private DdlWatch ddl;
    private DebeziumStream debezium;
    /** Records that the start of the task has to emit. */
    private final List<SourceRecord> startRecords = new ArrayList<>();

    @Override
    public void start(Map<String, String> properties) {
        configuration = Map.copyOf(properties);
        ExactlyOnce.boundary(new Requirements(configuration)).require();
        ExactlyOnce.requireOfWorker(configuration);
        settings = SourceSettings.of(configuration);
        partitions = new Partitions(configuration.get("topic.prefix"));
        metrics = new SourceMetrics(settings.name(), partitions.prefix());
        sizeLimit = new RecordSizeLimit(settings, metrics);
        source = new SourceCluster(configuration, settings.name());
        reads = new SnapshotReads(source, settings.copy());
        source.awaitPrimary(PATIENCE);
        source.requireFilters(configuration);
        ledger = new Ledger(partitions, context.offsetStorageReader());
        progress = new Progress(settings.name(), partitions, ledger, metrics);
        String selection = configuration.getOrDefault(SELECTION, "");
        if (!ledger.hasBegun()) begin(selection);
        else if (!ledger.selection().equals(selection)) reselect(selection);
        if (!ledger.history().resnapshot().equals(settings.resnapshot())
                && !settings.resnapshot().isEmpty()) resnapshot(selection);
        if (ledger.isStreaming()) ResumePoint.of(streamOffset(), ledger.start()).requireHistory(source);
        if (ledger.history().copied().isEmpty()) {
            ledger.history().copiedBefore(source.now());
            startRecords.add(ledger.rootRecord());
        }
        ddl = new DdlWatch(
                source,
                SourceCluster.selection(configuration),
                new DdlLog(
                        context.offsetStorageReader().offset(partitions.ddl()),
                        EventTime.of(streamOffset()).orElse(ledger.start())),
                settings.name());
    }

    private void begin(String selection) {
        ClusterTime now = source.now();
        if (settings.copies()) {
            ledger.begin(selection, now, source.namespaces(SourceCluster.selection(configuration)));
        } else {
            ledger.begin(selection, now.next(), List.of());
            ledger.beginStream();
        }
        ledger.history().skip(settings.resnapshot());
        startRecords.add(ledger.rootRecord());
    }

    /**
     * Re-reads what a resnapshot names: while the stream goes on if it can, and otherwise before it restarts. One transaction stores that
     * and deletes the offsets of the stream and of the earlier copy.
     */
    private void resnapshot(String selection) {
        Predicate<String> included = settings.isResnapshot().and(SourceCluster.selection(configuration));
        ResumePoint point = ResumePoint.of(streamOffset(), ledger.start());
        if (ledger.isStreaming() && !point.isLost(source)) {
            startRecords.addAll(ledger.copyAgain(settings.resnapshot(), source.namespaces(included)));
            return;
        }
        List<String> everything = source.namespaces(SourceCluster.selection(configuration));
        if (!everything.stream().allMatch(settings.isResnapshot())) {
            throw new ConnectException(
                    "TWP-HISTORY-LOST: the changes of all collections since %s are missing: a resnapshot of some would leave the others as they were then. Run `towpath resnapshot PIPELINE` without --only"
                            .formatted(point.time()));
        }
        ClusterTime captured = ledger.isStreaming() ? point.time() : ledger.start();
        startRecords.addAll(ledger.restart(settings.resnapshot(), selection, captured, source.now(), everything));
        startRecords.add(partitions.offsetRecord(DebeziumStream.partition(configuration), null, "the stream restarts"));
    }

    private Map<String, Object> streamOffset() {
        return context.offsetStorageReader().offset(DebeziumStream.partition(configuration));
    }

    /** Copies collections that are newly selected, and forgets those that are no longer selected. */
    private void reselect(String selection) {
        Map<String, String> before = new HashMap<>(configuration);
        before.put(SELECTION, ledger.selection());
        Predicate<String> wasSelected = SourceCluster.selection(before);
        Predicate<String> isSelected = SourceCluster.selection(configuration);
        List<String> added = settings.copies() ? source.namespaces(isSelected.and(wasSelected.negate())) : List.of();
        List<String> dropped = ledger.rows().copies().keySet().stream()
                .filter(isSelected.negate())
                .toList();
        startRecords.addAll(ledger.reselect(selection, added, dropped));
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        if (!startRecords.isEmpty()) {
            List<SourceRecord> records = List.copyOf(startRecords);
            startRecords.clear();
            return records;
        }
        Optional<Map<String, Object>> ddlOffset = ddl.dueOffset();
        if (ddlOffset.isPresent()) return List.of(partitions.offsetRecord(partitions.ddl(), ddlOffset.get(), "ddl"));
        if (phase == null || phase.isOver()) {
            Closing.all(phase);
            phase = ledger.isStreaming() ? streaming() : new InitialCopy(progress, reads);
        }
        return sizeLimit.applyTo(phase.poll());
    }

    private Phase streaming() {
        Optional<ClusterTime> last = EventTime.of(streamOffset());
        debezium = new DebeziumStream(context, configuration, source, ledger.start());
        Rereads rereads = new Rereads(
                progress,
                reads,
                settings.rereads(),
                context.offsetStorageReader(),
                SourceCluster.selection(configuration));
        return new Streaming(debezium, last, progress, reads, rereads, settings.wholeDocuments());
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
        Closing.all(phase, debezium, ddl, source, sizeLimit, metrics);
    }

    @Override
    public String version() {
        return new MongoDbConnectorTask().version();
    }
}
