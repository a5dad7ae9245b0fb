package io.towpath.source;

import io.debezium.connector.mongodb.MongoDbConnectorTask;
import io.towpath.connector.Closing;
import io.towpath.connector.Requirements;
import io.towpath.record.ClusterTime;
import io.towpath.transform.EventTime;
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

/** One life of {@link MongoSource}: goes on with the copy where its offsets left it, then with Debezium's stream. */
public final class MongoSourceTask extends SourceTask {
    private static final String PREFIX = "topic.prefix";
    private static final String SELECTION = "collection.include.list";
    /** For a source that has no primary when the task starts. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private Map<String, String> configuration;
    private SourceSettings settings;
    private SourceMetrics metrics;
    private SetAside setAside;
    private SourceCluster source;
    private Partitions partitions;
    private Ledger ledger;
    private Stage stage;
    private DdlWatch ddl;
    private DebeziumStream debezium;
    private final List<SourceRecord> first = new ArrayList<>();

    @Override
    public void start(Map<String, String> properties) {
        configuration = Map.copyOf(properties);
        ExactlyOnce.boundary(new Requirements(configuration)).require();
        ExactlyOnce.requireOfWorker(configuration);
        settings = SourceSettings.of(configuration);
        metrics = new SourceMetrics(settings.name(), configuration.get(PREFIX));
        setAside = new SetAside(settings, metrics);
        source = new SourceCluster(configuration, settings);
        source.awaitPrimary(PATIENCE);
        source.refuseExpressions(configuration);
        partitions = new Partitions(configuration.get(PREFIX));
        ledger = new Ledger(partitions, context.offsetStorageReader());
        String selection = configuration.getOrDefault(SELECTION, "");
        if (!ledger.hasBegun()) begin(selection);
        else if (!ledger.selection().equals(selection)) reselect(selection);
        if (!ledger.resnapshot().equals(settings.resnapshot())
                && !settings.resnapshot().isEmpty()) resnapshot(selection);
        if (ledger.isStreaming()) ResumePoint.of(streamOffset(), ledger.start()).refuseLost(source);
        if (ledger.copied().isEmpty()) {
            ledger.copiedBefore(source.now());
            first.add(ledger.rootRecord());
        }
        ddl = new DdlWatch(
                source,
                SourceCluster.selection(configuration),
                new DdlLog(
                        context.offsetStorageReader().offset(partitions.ddl()),
                        Optional.ofNullable(streamOffset())
                                .flatMap(EventTime::of)
                                .orElse(ledger.start())),
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
        ledger.takeUp(settings.resnapshot());
        first.add(ledger.rootRecord());
    }

    /**
     * Reads everything again that was asked for: while the stream goes on if it can, and else before it begins anew. Its offset and
     * those of the earlier copy are forgotten in the transaction that says so.
     */
    private void resnapshot(String selection) {
        Predicate<String> asked = settings.isResnapshot().and(SourceCluster.selection(configuration));
        ResumePoint point = ResumePoint.of(streamOffset(), ledger.start());
        if (ledger.isStreaming() && !point.isLost(source)) {
            first.addAll(ledger.copyAgain(settings.resnapshot(), source.namespaces(asked)));
            return;
        }
        List<String> everything = source.namespaces(SourceCluster.selection(configuration));
        if (!everything.stream().allMatch(settings.isResnapshot())) {
            throw new ConnectException(
                    "the changes of all collections since %s are missing: a resnapshot of some would leave the others as they were then. Run `towpath resnapshot PIPELINE` without --only"
                            .formatted(point.time()));
        }
        ClusterTime captured = ledger.isStreaming() ? point.time() : ledger.start();
        first.addAll(ledger.beginAnew(settings.resnapshot(), selection, captured, source.now(), everything));
        first.add(partitions.carrier(streamPartition(), null, "the stream begins anew"));
    }

    private Map<String, Object> streamPartition() {
        return Map.of("server_id", configuration.get(PREFIX));
    }

    private Map<String, Object> streamOffset() {
        return context.offsetStorageReader().offset(streamPartition());
    }

    /** What is taken in from now on and was not before is copied; what is no longer taken in is forgotten. */
    private void reselect(String selection) {
        Map<String, String> before = new HashMap<>(configuration);
        before.put(SELECTION, ledger.selection());
        Predicate<String> was = SourceCluster.selection(before);
        Predicate<String> is = SourceCluster.selection(configuration);
        List<String> added = settings.copies() ? source.namespaces(is.and(was.negate())) : List.of();
        List<String> dropped =
                ledger.copies().keySet().stream().filter(is.negate()).toList();
        first.addAll(ledger.reselect(selection, added, dropped));
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        if (!first.isEmpty()) {
            List<SourceRecord> records = List.copyOf(first);
            first.clear();
            return records;
        }
        Optional<Map<String, Object>> news = ddl.news();
        if (news.isPresent()) return List.of(partitions.carrier(partitions.ddl(), news.get(), "ddl"));
        if (stage == null || stage.isOver()) nextStage();
        return setAside.from(stage.poll());
    }

    private void nextStage() {
        if (stage != null) stage.close();
        stage = ledger.isStreaming() ? streaming() : new FirstCopy(ledger, partitions, source, settings, metrics);
    }

    private Stage streaming() {
        Optional<ClusterTime> last = Optional.ofNullable(streamOffset()).flatMap(EventTime::of);
        debezium = new DebeziumStream(context, configuration, source, ledger.start());
        ReadAgain readAgain = new ReadAgain(
                ledger,
                partitions,
                source,
                settings,
                metrics,
                context.offsetStorageReader(),
                SourceCluster.selection(configuration));
        return new Streaming(debezium, last, ledger, readAgain, source, settings, metrics);
    }

    @Override
    public void commitRecord(SourceRecord record, RecordMetadata metadata) throws InterruptedException {
        boolean isDebeziums = record.sourcePartition().containsKey("server_id");
        if (debezium != null && isDebeziums) debezium.commitRecord(record, metadata);
    }

    @Override
    public void commit() throws InterruptedException {
        if (debezium != null) debezium.commit();
    }

    @Override
    public void stop() {
        Closing.all(stage, debezium, ddl, source, setAside, metrics);
    }

    @Override
    public String version() {
        return new MongoDbConnectorTask().version();
    }
}
