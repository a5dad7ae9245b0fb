package io.towpath.source.ddl;

import io.towpath.source.TowpathSourceTask;
import io.towpath.source.progress.Partitions;
import io.towpath.support.SourceContext;
import io.towpath.support.Sources;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.kafka.connect.source.SourceRecord;

/** Lives of the first task of a connector, one after the other, with what they have committed. */
final class SourceLife implements AutoCloseable {
    private static final long PATIENCE_NS = 60_000_000_000L;

    final Map<String, String> configuration = Sources.configuration();
    final SourceContext context = new SourceContext(configuration);
    private final Consumer<List<SourceRecord>> into;
    private TowpathSourceTask task;

    /** @param selection a regular expression; @param into gets what each transaction commits */
    SourceLife(String selection, Consumer<List<SourceRecord>> into) {
        this.into = into;
        configuration.putAll(Map.of(
                "collection.include.list", selection,
                "towpath.ddl", "true",
                "capture.mode", "change_streams",
                "topic.creation.default.partitions", "3",
                "heartbeat.interval.ms", "50",
                "cursor.max.await.time.ms", "50",
                "poll.interval.ms", "20",
                "tombstones.on.delete", "false"));
    }

    void begin() {
        task = new TowpathSourceTask();
        task.initialize(context);
        task.start(new HashMap<>(configuration));
    }

    /** One transaction, which is committed. */
    void commit() throws InterruptedException {
        List<SourceRecord> records = task.poll();
        if (records == null) return;
        context.store(records);
        into.accept(records);
    }

    /** One transaction that is lost, and the task with it. */
    void kill() throws InterruptedException {
        for (int tries = 0; tries < 20 && task.poll() == null; ) tries++;
        stop();
    }

    void commitUntil(BooleanSupplier fact) throws InterruptedException {
        for (long end = System.nanoTime() + PATIENCE_NS; !fact.getAsBoolean(); ) {
            if (System.nanoTime() > end) throw new AssertionError("in vain; the offset is " + offset());
            commit();
        }
    }

    Map<String, Object> offset() {
        return context.offset(new Partitions("p").schema());
    }

    void stop() {
        if (task != null) task.stop();
        task = null;
    }

    @Override
    public void close() {
        stop();
    }
}
