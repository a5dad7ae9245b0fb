package io.towpath.source;

import com.mongodb.MongoException;
import io.debezium.DebeziumException;
import io.debezium.connector.mongodb.MongoDbConnectorTask;
import io.towpath.record.ClusterTime;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Debezium's stream. Where an event is too large for the server to send, it is begun anew, behind the last record that is out, asking
 * for nothing but the key of that event. Where the source no longer holds what comes next, it ends with words that say so.
 */
final class DebeziumStream implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(DebeziumStream.class);
    private static final int TOO_LARGE = 10334;
    private static final int MOST_ATTEMPTS = 20;
    private static final long PAUSE_MS = 500;
    /** For so long the first one is looked for, which is in the batch that failed; and further ones. */
    private static final long LONGEST_NS = Duration.ofSeconds(60).toNanos();

    private static final long MORE_NS = Duration.ofSeconds(2).toNanos();

    private final SourceTaskContext context;
    private final Map<String, String> configuration;
    private final SourceCluster source;
    private final ClusterTime start;
    /** Resume tokens of events that are too large, with their times. */
    private final Map<String, ClusterTime> oversized = new TreeMap<>();

    private MongoDbConnectorTask task;
    private int attempts;

    /** @param start where the stream begins when there is no offset */
    DebeziumStream(
            SourceTaskContext context, Map<String, String> configuration, SourceCluster source, ClusterTime start) {
        this.context = context;
        this.configuration = configuration;
        this.source = source;
        this.start = start;
        point().refuseLost(source);
    }

    /** Where the next event is looked for: behind everything that is committed. */
    ResumePoint point() {
        Map<String, Object> offset =
                context.offsetStorageReader().offset(Map.of("server_id", configuration.get("topic.prefix")));
        return ResumePoint.of(offset, start);
    }

    /** Debezium's records; null when there are none. */
    List<SourceRecord> poll() throws InterruptedException {
        try {
            if (task == null) begin();
            List<SourceRecord> records = task.poll();
            if (records != null && !records.isEmpty()) attempts = 0;
            return records;
        } catch (RuntimeException error) {
            mend(error);
            return null;
        }
    }

    private void begin() {
        Map<String, String> settings = new HashMap<>(SourceSettings.debezium(configuration, start.bits()));
        if (!oversized.isEmpty()) {
            settings.put("cursor.pipeline", ChangeCarrier.pipeline(oversized.keySet()));
            settings.put("cursor.pipeline.order", "user_first"); // Debezium's filter puts whole events together
        }
        task = new MongoDbConnectorTask();
        task.initialize(context);
        task.start(settings);
    }

    /** Sees to it that the next poll begins anew. Throws what cannot be mended here, and what passes by itself. */
    private void mend(RuntimeException error) throws InterruptedException {
        int code = code(error);
        boolean isRefusal = error instanceof DebeziumException; // at its start: it cannot resume, whyever
        if (code != TOO_LARGE && !ResumePoint.isAboutLoss(code) && !isRefusal) throw error;
        ResumePoint point = point();
        point.refuseLost(source);
        if (++attempts > MOST_ATTEMPTS) throw error;
        close();
        oversized.values().removeIf(time -> point.time().isAfter(time));
        int known = oversized.size();
        long end = System.nanoTime() + LONGEST_NS;
        Optional<OversizedSearch.Found> found = search(point, end);
        while (found.isPresent()) { // where there is one, more may follow
            LOGGER.warn("the change of {} is too large for a change stream, so the document is read", found.get());
            oversized.put(found.get().token(), found.get().time());
            end = Math.min(end, System.nanoTime() + MORE_NS);
            found = search(found.get().passed(), end);
        }
        if (oversized.size() > known) attempts = 0;
        else Thread.sleep(PAUSE_MS);
    }

    private Optional<OversizedSearch.Found> search(ResumePoint point, long end) {
        try {
            return new OversizedSearch(source, oversized.keySet()).after(point, end);
        } catch (MongoException error) {
            if (!ReadFault.passes(error)) throw error;
            throw new RetriableException(
                    "an event of the source is too large, and is looked for: " + ReadFault.words(error), error);
        }
    }

    private static int code(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MongoException fault) return fault.getCode();
        }
        return 0;
    }

    void commitRecord(SourceRecord record, RecordMetadata metadata) throws InterruptedException {
        if (task != null) task.commitRecord(record, metadata);
    }

    void commit() throws InterruptedException {
        if (task != null) task.commit();
    }

    @Override
    public void close() {
        if (task != null) task.stop();
        task = null;
    }
}
