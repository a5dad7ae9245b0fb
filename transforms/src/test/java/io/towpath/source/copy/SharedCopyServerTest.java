package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoCollection;
import io.towpath.debezium.SourceCluster;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import io.towpath.support.StoredOffsets;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import javax.management.ObjectName;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** Several tasks copy a real collection. They see of each other what is stored, which is what a test commits. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SharedCopyServerTest {
    private static final int COUNT = 3_000;
    private static final String SELECTION = "x";

    private final Server server = new Server();
    private final MongoCollection<RawBsonDocument> collection = server.fresh("shared");
    private final String namespace = collection.getNamespace().getFullName();
    private final Partitions partitions = new Partitions("p");
    private final StoredOffsets offsets = new StoredOffsets();
    /** How often each key was committed. */
    private final Map<String, Integer> rows = new TreeMap<>();

    private SourceCluster source;

    @BeforeEach
    void begin() throws Exception {
        source = Sources.connected(Sources.configuration());
        String text = "x".repeat(1_000);
        collection.insertMany(IntStream.range(0, COUNT)
                .mapToObj(id -> RawBsonDocument.parse("{_id: %d, text: '%s'}".formatted(id, text)))
                .toList());
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.begin(SELECTION, source.now(), List.of(namespace));
        offsets.store(List.of(ledger.rootRecord()));
    }

    @AfterEach
    void close() {
        source.close();
        offsets.close();
        server.close();
    }

    @Test
    @Tag("nightly")
    void anotherNumberOfTasksGoesOnWhereTheTasksBeforeWereCommitted() throws Exception {
        try (Generation three = new Generation(3)) {
            for (int page = 0; page < 4; page++) {
                for (Task task : three.tasks) task.commit(task.pollRecords());
            }
            for (Task task : three.tasks) assertTrue(task.rows > 0, "each task has copied");
            three.tasks.get(1).pollRecords(); // not committed: it is killed
        }
        assertTrue(rows.size() < COUNT, "the copy was over before it had another number of tasks");
        try (Generation two = new Generation(2)) {
            Task first = two.tasks.get(0);
            Task other = two.tasks.get(1);
            while (first.waitsFor().isEmpty()) first.commit(first.copy.poll());
            assertTrue(first.waitsFor().endsWith("ranges of task 1"), first.waitsFor());
            List<SourceRecord> last = other.untilOver();
            assertTrue(rows.size() < COUNT);
            for (int poll = 0; poll < 4; poll++) first.commit(first.copy.poll()); // each waits for half a second
            assertFalse(first.copy.isOver(), "the other task's last rows are not committed");
            other.commit(last);
            while (!first.copy.isOver()) first.commit(first.copy.poll());
            assertTrue(first.progress.ledger().isStreaming());
            assertEquals("", first.waitsFor());
        }
        assertEquals(COUNT, rows.size());
        assertTrue(rows.values().stream().allMatch(count -> count == 1), "a row was committed twice");
    }

    @Test
    void aTaskIsIdleOnceTheFirstStreams() throws Exception {
        Ledger ledger = new Ledger(partitions, offsets.reader());
        ledger.beginStream();
        offsets.store(List.of(ledger.rootRecord()));
        try (Task task = new Task(new CopyShare(1, 2))) {
            while (!task.copy.isOver()) assertEquals(null, task.copy.poll());
        }
    }

    /** So many tasks, which continue with what is stored. */
    private final class Generation implements AutoCloseable {
        private final List<Task> tasks;

        Generation(int count) {
            tasks = IntStream.range(0, count)
                    .mapToObj(task -> new Task(new CopyShare(task, count)))
                    .toList();
        }

        @Override
        public void close() {
            tasks.forEach(Task::close);
        }
    }

    private final class Task implements AutoCloseable {
        private final CopyShare share;
        private final SourceMetrics metrics;
        private final Progress progress;
        private final InitialCopy copy;
        private int rows;

        Task(CopyShare share) {
            this.share = share;
            this.metrics = new SourceMetrics("p-source", "p", "p", share);
            this.progress =
                    new Progress("p", partitions, new Ledger(partitions, offsets.reader()), metrics, Rules.NONE);
            Map<String, String> settings = Map.of(
                    CopyShare.TASK,
                    Integer.toString(share.task()),
                    CopyShare.TASKS,
                    Integer.toString(share.tasks()),
                    "towpath.copy.threads",
                    "1",
                    "towpath.copy.documents.per.second",
                    "3000",
                    "towpath.copy.range.bytes",
                    "50000");
            ConfigDef definition = CopySettings.define(new ConfigDef());
            CopySettings parsed = CopySettings.of(new AbstractConfig(definition, settings));
            this.copy = new InitialCopy(progress, new SnapshotReads(source, parsed, Rules.NONE), offsets.reader());
        }

        /** The records of the next poll that has any. */
        List<SourceRecord> pollRecords() throws InterruptedException {
            List<SourceRecord> records = null;
            while (records == null) {
                if (!share.isFirst()) assertFalse(copy.isOver(), "it has copied its share already");
                records = copy.poll();
            }
            return records;
        }

        void commit(List<SourceRecord> records) throws Exception {
            if (records == null) return;
            offsets.store(records);
            for (SourceRecord record : records) {
                if (!(record.key() instanceof byte[] key)) continue;
                rows++;
                SharedCopyServerTest.this.rows.merge(HexFormat.of().formatHex(key), 1, Integer::sum);
            }
        }

        /** Commits all but the last poll, which it returns. */
        List<SourceRecord> untilOver() throws Exception {
            List<SourceRecord> held = new ArrayList<>();
            while (!copy.isOver()) {
                List<SourceRecord> records = copy.poll();
                if (records == null) continue;
                if (!held.isEmpty()) commit(held);
                held = records;
            }
            return held;
        }

        String waitsFor() throws Exception {
            ObjectName name = new ObjectName("io.towpath:type=source,connector=p-source,task=0,pipeline=p,prefix=p");
            Object value = ManagementFactory.getPlatformMBeanServer().getAttribute(name, "WaitsFor");
            assertNotNull(value);
            return value.toString();
        }

        @Override
        public void close() {
            copy.close();
            metrics.close();
        }
    }
}
