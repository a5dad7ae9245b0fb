package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.WriteConcern;
import com.mongodb.client.MongoCollection;
import io.towpath.debezium.DebeziumStream;
import io.towpath.debezium.SourceCluster;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import io.towpath.support.StoredOffsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A task of which the offsets alone tell what to do, and what the log holds. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TowpathSourceTaskServerTest {
    private static final CopyShare SHARE = new CopyShare(1, 2);
    private static final int LOOKS = 2;

    private final Server server = new Server();
    /** Its only range belongs to the task. */
    private final MongoCollection<RawBsonDocument> collection = Stream.iterate(0, n -> n + 1)
            .map(n -> server.fresh("shares" + n))
            .filter(one -> SHARE.has(one.getNamespace().getFullName(), 0))
            .findFirst()
            .orElseThrow();

    private final String namespace = collection.getNamespace().getFullName();
    private final Partitions partitions = new Partitions("p");
    private final StoredOffsets offsets = new StoredOffsets();
    private final Set<String> log = new HashSet<>();
    private TowpathSourceTask task = task();
    private ClusterTime now;

    private TowpathSourceTask task() {
        return new TowpathSourceTask(
                (settings, selection) -> log.stream().filter(selection).collect(Collectors.toSet()));
    }

    @BeforeEach
    void begin() {
        collection.insertOne(RawBsonDocument.parse("{_id: 1}"));
        try (SourceCluster source = Sources.connected(Sources.configuration())) {
            now = source.now();
        }
    }

    @AfterEach
    void close() {
        task.stop();
        offsets.close();
        server.close();
    }

    @Test
    @Tag("nightly")
    void itWaitsUntilTheFirstTaskHasBegunTheCopyThatItsConfigurationAsksFor() throws Exception {
        start(Map.of("towpath.resnapshot", "again"));
        waits("nothing has begun");
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.begin("former", now, List.of(namespace));
        offsets.store(List.of(ledger.rootRecord(), ledger.plan(namespace, plan())));
        waits("these are the ranges of another selection");
        offsets.store(ledger.reselect("x", List.of(), List.of()));
        waits("these are the ranges from before the resnapshot");
        offsets.store(ledger.restart("again", "x", now, now, List.of(namespace)));
        waits("nothing is planned");
        offsets.store(List.of(ledger.plan(namespace, plan())));

        List<SourceRecord> rows = next();

        assertEquals(2, rows.size(), "a row, and the end of the round");
        assertEquals("p." + namespace, rows.get(0).topic());
        waits("its share is copied");
    }

    @Test
    void itIdlesWhereTheFirstTaskStreams() throws Exception {
        start(Map.of());
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.begin("x", now, List.of(namespace));
        ledger.plan(namespace, plan());
        ledger.beginStream();
        offsets.store(List.of(ledger.rootRecord()));
        waits("the copy is over");
    }

    /** A cutover lets writers write once it is stored, and the schemas of thousands of collections take seconds. */
    @Test
    void whereAStreamBeginsIsStoredBeforeWhatExistsThen() throws Exception {
        stream("x," + quoted());

        List<SourceRecord> first = task.poll();

        assertEquals(List.of(partitions.root()), partitionsOf(first));
        offsets.store(first);
        ClusterTime stored = new Ledger(partitions, offsets.reader()).start();
        assertTrue(stored.isAfter(now), () -> stored + " after " + now);
        List<SourceRecord> second = next();
        assertEquals("p." + namespace, second.get(0).topic());
        offsets.store(second);
        assertEquals(stored, new Ledger(partitions, offsets.reader()).start());
    }

    /** Or a kill in between would leave it without a description. */
    @Test
    @Tag("nightly")
    void aNewSelectionIsStoredWithTheDescriptionsOfWhatItAdds() throws Exception {
        stream("x");
        offsets.store(next());
        offsets.store(next());
        task.stop();
        task = task();
        stream("x," + quoted());

        List<SourceRecord> first = next();

        assertEquals("p." + namespace, first.get(0).topic());
        assertTrue(partitionsOf(first).contains(partitions.root()));
    }

    private void stream(String selection) {
        startAlone(Map.of("collection.include.list", selection, "towpath.copy", "none", "towpath.ddl", "true"));
    }

    private String quoted() {
        return namespace.replace(".", "[.]");
    }

    private List<SourceRecord> next() throws InterruptedException {
        List<SourceRecord> records = null;
        while (records == null) records = task.poll();
        return records;
    }

    private static List<Map<String, ?>> partitionsOf(List<SourceRecord> records) {
        return records.stream()
                .<Map<String, ?>>map(SourceRecord::sourcePartition)
                .toList();
    }

    /** The log lacks the changes while it was excluded, and a copy would not show what was deleted. */
    @ParameterizedTest
    @CsvSource({"'', .*", "again, other"})
    void aCollectionThatComesBackNeedsAResnapshotOfIt(String resnapshot, String only) throws Exception {
        ConnectException refused =
                assertThrows(ConnectException.class, () -> startAfterItWasExcluded(resnapshot, only));
        assertTrue(refused.getMessage().startsWith("TWP-HISTORY-LOST: "), refused::getMessage);
        assertTrue(
                refused.getMessage().contains("the log holds records of %s.".formatted(namespace)),
                refused::getMessage);
    }

    @Test
    void aCollectionThatComesBackWithAResnapshotIsCaptured() {
        assertDoesNotThrow(() -> startAfterItWasExcluded("again", ".*"));
    }

    /** A change stream opens there: it needs no entry of its time. */
    @Test
    void aSourceWithoutTheEntryUpToWhichItWasCapturedIsRefused() {
        ConnectException refused = assertThrows(ConnectException.class, () -> startWithOtherHistory(""));
        assertTrue(refused.getMessage().startsWith("TWP-OTHER-HISTORY: "), refused::getMessage);
    }

    @Test
    void aResnapshotOfSuchASourceCopiesEverythingAndThenBeginsAnotherStream() throws Exception {
        startWithOtherHistory("again");
        offsets.store(next());
        Ledger ledger = new Ledger(partitions, offsets.reader());
        assertEquals("again", ledger.history().resnapshot());
        assertTrue(ledger.isCopying());
        assertNull(offsets.reader().offset(DebeziumStream.partition(Sources.configuration())));
    }

    private void startWithOtherHistory(String resnapshot) throws Exception {
        collection.withWriteConcern(WriteConcern.MAJORITY).insertOne(RawBsonDocument.parse("{_id: 2}"));
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.begin(quoted(), new ClusterTime(now.seconds() - 60, 1), List.of());
        ledger.beginStream();
        Map<String, Object> noEntry = Map.of("sec", now.seconds(), "ord", 0);
        Map<String, Object> stream = DebeziumStream.partition(Sources.configuration());
        offsets.store(List.of(ledger.rootRecord(), partitions.offsetRecord(stream, noEntry, "an idle source")));
        startAlone(Map.of("collection.include.list", quoted(), "towpath.resnapshot", resnapshot));
    }

    private void startAfterItWasExcluded(String resnapshot, String only) throws Exception {
        log.addAll(List.of("shop.kept", namespace, "shop.excluded"));
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.begin("shop[.]kept", now, List.of());
        ledger.beginStream();
        offsets.store(List.of(ledger.rootRecord()));
        startAlone(Map.of(
                "collection.include.list",
                "shop[.]kept," + quoted(),
                "towpath.resnapshot",
                resnapshot,
                "towpath.resnapshot.only",
                only));
    }

    /** Log and destination have what the rules before left. */
    @ParameterizedTest
    @CsvSource({"'', .*", "again, other"})
    void otherRulesNeedAResnapshotOfWhatTheyChange(String resnapshot, String only) {
        ConnectException refused =
                assertThrows(ConnectException.class, () -> startWithRules("ssn", "email", resnapshot, only));
        assertTrue(refused.getMessage().startsWith("TWP-RULES-CHANGED: "), refused::getMessage);
        assertTrue(refused.getMessage().contains("resnapshot PIPELINE --only %s`".formatted(namespace)));
    }

    @Test
    void withAResnapshotOtherRulesAreStoredAsThoseThatTheLogFollows() throws Exception {
        startWithRules("ssn", "email", "again", ".*");
        offsets.store(next());
        assertEquals(rules("email").text(), new Ledger(partitions, offsets.reader()).rules());
    }

    @Test
    void rulesThatLeaveTheSameNeedNothing() {
        assertDoesNotThrow(() -> startWithRules("ssn", "ssn", "", ".*"));
    }

    private Rules rules(String dropped) {
        return Rules.of(rulesJson(dropped), "");
    }

    private String rulesJson(String dropped) {
        return "[{collections: '%s', drop: ['%s']}]".formatted(quoted(), dropped);
    }

    private void startWithRules(String before, String now, String resnapshot, String only) throws Exception {
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.begin(quoted(), this.now, List.of());
        ledger.beginStream();
        ledger.follow(rules(before).text());
        offsets.store(List.of(ledger.rootRecord()));
        startAlone(Map.of(
                "collection.include.list",
                quoted(),
                "towpath.rules",
                rulesJson(now),
                "towpath.resnapshot",
                resnapshot,
                "towpath.resnapshot.only",
                only));
    }

    private static RangePlan plan() {
        return new RangePlan(List.of(), 1, 1, 7);
    }

    private void waits(String why) throws InterruptedException {
        for (int look = 0; look < LOOKS; look++) assertNull(task.poll(), why);
    }

    /** The only task. */
    private void startAlone(Map<String, String> settings) {
        Map<String, String> alone = new HashMap<>(settings);
        alone.put(CopyShare.TASK, "0");
        alone.put(CopyShare.TASKS, "1");
        start(alone);
    }

    private void start(Map<String, String> settings) {
        Map<String, String> configuration = Sources.configuration();
        configuration.put("collection.include.list", "x");
        configuration.put("heartbeat.interval.ms", "150");
        configuration.put(CopyShare.TASK, "1");
        configuration.put(CopyShare.TASKS, "2");
        configuration.putAll(settings);
        task.initialize(new Context(configuration, offsets.reader()));
        task.start(configuration);
    }

    private record Context(Map<String, String> configs, OffsetStorageReader offsetStorageReader)
            implements SourceTaskContext {
        @Override
        public PluginMetrics pluginMetrics() {
            throw new UnsupportedOperationException();
        }
    }
}
