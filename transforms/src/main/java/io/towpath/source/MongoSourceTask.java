package io.towpath.source;

import io.debezium.connector.mongodb.MongoDbConnectorTask;
import io.towpath.record.ClusterTime;
import io.towpath.transform.EventTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** One life of {@link MongoSource}: goes on with the copy where its offsets left it, then with Debezium's stream. */
public final class MongoSourceTask extends SourceTask {
    private static final String PREFIX = "topic.prefix";
    private static final String SELECTION = "collection.include.list";

    private Map<String, String> configuration;
    private SourceSettings settings;
    private SourceMetrics metrics;
    private SourceCluster source;
    private Partitions partitions;
    private Ledger ledger;
    private Stage stage;
    private DdlWatch ddl;
    private MongoDbConnectorTask debezium;
    private final List<SourceRecord> first = new ArrayList<>();

    @Override
    public void start(Map<String, String> properties) {
        configuration = Map.copyOf(properties);
        settings = SourceSettings.of(configuration);
        metrics = new SourceMetrics(settings.name(), configuration.get(PREFIX));
        source = new SourceCluster(configuration, settings);
        partitions = new Partitions(configuration.get(PREFIX));
        ledger = new Ledger(partitions, context.offsetStorageReader());
        String selection = configuration.getOrDefault(SELECTION, "");
        if (!ledger.hasBegun()) begin(selection);
        else if (!ledger.selection().equals(selection)) reselect(selection);
        if (ledger.copied().isEmpty()) {
            ledger.copiedBefore(source.now());
            first.add(ledger.rootRecord());
        }
        ddl = new DdlWatch(
                source,
                SourceCluster.selection(configuration),
                new DdlLog(
                        context.offsetStorageReader().offset(partitions.ddl()),
                        streamed().orElse(ledger.start())),
                settings.name());
    }

    /** How far an earlier task has put the stream out. */
    private Optional<ClusterTime> streamed() {
        Map<String, Object> offset =
                context.offsetStorageReader().offset(Map.of("server_id", configuration.get(PREFIX)));
        return offset == null ? Optional.empty() : EventTime.of(offset);
    }

    private void begin(String selection) {
        ClusterTime now = source.now();
        if (settings.copies()) {
            ledger.begin(selection, now, source.namespaces(SourceCluster.selection(configuration)));
        } else {
            ledger.begin(selection, now.next(), List.of());
            ledger.beginStream();
        }
        first.add(ledger.rootRecord());
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
        return stage.poll();
    }

    private void nextStage() {
        if (stage != null) stage.close();
        stage = ledger.isStreaming() ? streaming() : new FirstCopy(ledger, partitions, source, settings, metrics);
    }

    private Stage streaming() {
        debezium = new MongoDbConnectorTask();
        debezium.initialize(context);
        debezium.start(SourceSettings.debezium(configuration, ledger.start().bits()));
        ReadAgain readAgain = new ReadAgain(
                ledger,
                partitions,
                source,
                settings,
                metrics,
                context.offsetStorageReader(),
                SourceCluster.selection(configuration));
        return new Streaming(debezium, streamed(), ledger, readAgain, settings, metrics);
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
        if (stage != null) stage.close();
        if (debezium != null) debezium.stop();
        if (ddl != null) ddl.close();
        if (source != null) source.close();
        if (metrics != null) metrics.close();
    }

    @Override
    public String version() {
        return new MongoDbConnectorTask().version();
    }
}
