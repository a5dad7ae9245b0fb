package io.towpath.source.splice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.record.Change;
import io.towpath.record.RecordHeaders;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.support.Fuzz;
import io.towpath.support.LogModel;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;

/** Random histories of documents with arrays: a reader of the records always has the source's document, byte for byte. */
class SplicerFuzzTest {
    private static final int STEPS = 80;
    private static final int DOCUMENTS = 3;
    private static final long[] CACHES = {2_000, 8_000, 1 << 20};

    private final Map<String, Integer> kinds = new TreeMap<>();

    @Test
    void aReaderHasTheDocumentsOfTheSource() {
        try (SourceMetrics metrics = new SourceMetrics("p-source", "p", "p", new CopyShare(0, 1))) {
            Fuzz.run("spliced histories", 100, random -> {
                long cache = CACHES[random.nextInt(CACHES.length)];
                Splicer splicer = new Splicer(cache, metrics, new SpliceTotals(null));
                Map<Integer, Replicated> documents = new HashMap<>();
                for (int step = 0; step < STEPS; step++) {
                    int id = random.nextInt(DOCUMENTS);
                    documents
                            .computeIfAbsent(id, unused -> new Replicated(random, id))
                            .step(splicer);
                }
                return "cache of %,d bytes".formatted(cache);
            });
        }
        System.out.println("records: " + kinds);
        int updates = kinds.get("update") + kinds.get("splices") + kinds.get("lost");
        assertTrue(kinds.get("splices") > updates / 10, kinds::toString);
        assertTrue(kinds.get("two splices") > updates / 100, kinds::toString);
    }

    /** A document at the source, and as the log has it. */
    private final class Replicated {
        private final Random random;
        private final byte[] key;
        private final ArrayHistory history;
        private final LogModel source = new LogModel();
        private final LogModel reader = new LogModel();
        /** A record of it did not reach the log. */
        private boolean isStale;

        Replicated(Random random, int id) {
            this.random = random;
            this.key = Records.key(id);
            this.history = new ArrayHistory(random, id);
        }

        void step(Splicer splicer) {
            byte[] value = history.next(source);
            SourceRecord record = Records.record(key, value);
            byte[] copy = value == null ? null : value.clone();
            SourceRecord emitted = splicer.applyTo(record);
            assertArrayEquals(copy, (byte[]) record.value(), "the record itself stays");
            source.apply(value);
            if (random.nextInt(40) == 0) {
                splicer.forget(emitted);
                isStale = true;
                count("lost");
                return;
            }
            reader.apply((byte[]) emitted.value());
            Change change = Change.decode(value);
            if (!(change instanceof Change.Update)) isStale = false;
            if (!isStale) assertArrayEquals(source.bytes(), reader.bytes());
            check(record, emitted);
        }

        private void check(SourceRecord record, SourceRecord emitted) {
            byte[] value = (byte[]) emitted.value();
            if (!(Change.decode(value) instanceof Change.Update update)) {
                assertSame(record, emitted);
                count("no update");
                return;
            }
            String header = TextHeaders.read(emitted, RecordHeaders.NAME).orElseThrow();
            assertEquals(Records.HEADER, header);
            if (update.splices().isEmpty()) {
                assertSame(record, emitted);
                count("update");
                return;
            }
            assertNotSame(record, emitted);
            assertTrue(emitted instanceof LogRecord);
            assertTrue(value.length < ((byte[]) record.value()).length);
            assertArrayEquals(value, update.encode());
            assertEquals(record.topic(), emitted.topic());
            assertSame(record.key(), emitted.key());
            assertSame(record.sourceOffset(), emitted.sourceOffset());
            assertSame(record.sourcePartition(), emitted.sourcePartition());
            count(update.splices().size() > 1 ? "two splices" : "splices");
            requireApart(update);
        }
    }

    private static void requireApart(Change.Update update) {
        String[] spliced =
                update.splices().stream().map(splice -> splice.path() + ".").toArray(String[]::new);
        for (String path : spliced) {
            assertTrue(Arrays.stream(path.split("\\.")).noneMatch(name -> name.matches("|\\d+|\\$.*")), path);
            for (String other : spliced) assertTrue(other.equals(path) || !other.startsWith(path), path);
            update.set().keySet().forEach(other -> requireApart(path, other + "."));
            update.unset().forEach(other -> requireApart(path, other + "."));
            update.truncations().forEach(other -> requireApart(path, other.path() + "."));
        }
    }

    private static void requireApart(String path, String other) {
        assertTrue(!path.startsWith(other) && !other.startsWith(path), path + " and " + other);
    }

    private void count(String kind) {
        kinds.merge(kind, 1, Integer::sum);
    }
}
