package io.towpath.debezium;

import com.mongodb.MongoException;
import io.debezium.DebeziumException;
import io.towpath.net.PemFiles;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Debezium's stream. When an event is too large for the server to send, the stream restarts after the last emitted record and requests only
 * the key of that event. When the source no longer holds the next changes, the stream fails with TWP-HISTORY-LOST, and when it has another
 * history than that of the changes before, with TWP-OTHER-HISTORY.
 */
public final class DebeziumStream implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(DebeziumStream.class);
    /**
     * Of one poll, which is a transaction. Connect asks Kafka about each topic that a task has not written to before, and the broker stores all
     * partitions of the transaction again with each one that is added: 2,300 topics took longer than the minute after which a broker aborts
     * it (4.3.1, whose heap of 768 MB was nearly full).
     */
    public static final int MOST_TOPICS = 200;

    private static final int MOST_ATTEMPTS = 20;
    private static final long PAUSE_MS = 500;
    /** Debezium's setting: the longest pause before a stream that an error has ended begins again. */
    private static final String LONGEST_PAUSE = "retriable.restart.connector.wait.ms";

    private static final String LONGEST_PAUSE_MS = "10000"; // Debezium's default

    /** What Debezium waits for a thread that a lost server holds, before it interrupts it: Connect waits 5 s for the whole task. */
    private static final String LONGEST_STOP = "executor.shutdown.timeout.ms";

    private static final String LONGEST_STOP_MS = "1500";
    /** How long to search for the first oversized event, which is in the failed batch, and for each further one. */
    private static final long FIRST_SEARCH_NS = Duration.ofSeconds(60).toNanos();

    private static final long NEXT_SEARCH_NS = Duration.ofSeconds(2).toNanos();

    private final SourceTaskContext context;
    private final Map<String, String> configuration;
    private final SourceCluster source;
    private final ClusterTime start;
    /** Resume tokens of events that are too large, with their times. */
    private final Map<String, ClusterTime> oversized = new TreeMap<>();

    private volatile DebeziumTask task;
    private QueuedBytes queue;
    private final WholeTransactions transactions;
    /** Taken from Debezium, for the next polls. */
    private List<SourceRecord> rest = List.of();

    private int attempts;
    /** The next pause after an error; it doubles until there are records again. */
    private long pauseMs = PAUSE_MS;

    private long beginNs = System.nanoTime();

    /** @param start where the stream begins when there is no offset */
    public DebeziumStream(
            SourceTaskContext context, Map<String, String> configuration, SourceCluster source, ClusterTime start) {
        this(context, configuration, source, start, WholeTransactions.MOST_BYTES);
    }

    /** @param mostBytes of a transaction's events: a larger one comes in parts */
    public DebeziumStream(
            SourceTaskContext context,
            Map<String, String> configuration,
            SourceCluster source,
            ClusterTime start,
            long mostBytes) {
        this.transactions = new WholeTransactions(mostBytes);
        this.context = context;
        this.configuration = configuration;
        this.source = source;
        this.start = start;
    }

    /** Where the stream begins when there is no offset: events of this time may follow. */
    public ClusterTime start() {
        return start;
    }

    /** The partition of Debezium's offsets. */
    public static Map<String, Object> partition(Map<String, String> configuration) {
        return Map.of("server_id", configuration.get("topic.prefix"));
    }

    /** Whether a record has Debezium's offset, not one of ours. */
    public static boolean owns(SourceRecord record) {
        return record.sourcePartition().containsKey("server_id");
    }

    /** Where the stream continues: after everything that is committed. */
    private ResumePoint point() {
        return ResumePoint.of(context.offsetStorageReader().offset(partition(configuration)), start);
    }

    /**
     * Debezium's records, whole transactions of at most {@link #MOST_TOPICS} together; null when there are none. A transaction of more topics
     * comes alone, and one that is {@linkplain #cut too large} in parts.
     */
    public List<SourceRecord> poll() throws InterruptedException {
        if (rest.isEmpty()) rest = transactions.of(taken());
        if (rest.isEmpty()) return null;
        attempts = 0;
        pauseMs = PAUSE_MS;
        int end = endOfTopics(rest, MOST_TOPICS);
        List<SourceRecord> records = rest.subList(0, end);
        rest = rest.subList(end, rest.size());
        return records;
    }

    /** The time of a transaction that was too large to come whole, if a part of it may still come. */
    public Optional<ClusterTime> cut() {
        return rest.isEmpty() ? transactions.cut() : Optional.empty();
    }

    private List<SourceRecord> taken() throws InterruptedException {
        try {
            if (task == null && !isDue()) return List.of();
            if (task == null) begin();
            List<SourceRecord> records = task.poll();
            queue.taken(records);
            return records == null ? List.of() : records;
        } catch (RuntimeException error) {
            recover(error);
            return List.of();
        }
    }

    /** How many of these records, from the first on, have at most so many topics; a transaction is not divided. */
    static int endOfTopics(List<SourceRecord> records, int most) {
        Set<String> topics = new HashSet<>();
        for (int index = 0; index < records.size(); index++)
            if (topics.add(records.get(index).topic()) && topics.size() > most)
                return WholeTransactions.between(records, index);
        return records.size();
    }

    /** Whether the pause after an error is over; otherwise waits for a part of it, as a task that is to stop must not wait long. */
    private boolean isDue() throws InterruptedException {
        long leftMs = (beginNs - System.nanoTime()) / 1_000_000;
        if (leftMs > 0) Thread.sleep(Math.min(leftMs, PAUSE_MS));
        return System.nanoTime() - beginNs >= 0;
    }

    private void begin() {
        // each time, as a source that was away may have been restored
        if (!point().requireHistory(source))
            throw new RetriableException("the source does not report yet whether it has the history that was captured");
        transactions.begin();
        Map<String, String> settings = settings(configuration, start, oversized.keySet());
        queue = QueuedBytes.insteadOf(settings);
        task = new DebeziumTask(queue);
        task.initialize(context);
        task.start(settings);
    }

    /**
     * Debezium's configuration, but without its snapshot, and with the start of its stream.
     *
     * @param oversized resume tokens of events of which only the key is requested
     */
    static Map<String, String> settings(
            Map<String, String> configuration, ClusterTime start, Collection<String> oversized) {
        Map<String, String> settings = new HashMap<>(configuration);
        settings.keySet().removeIf(key -> key.startsWith("towpath.") && !key.startsWith(PemFiles.PREFIX));
        settings.put("snapshot.mode", "no_data");
        settings.put("capture.start.op.time", Long.toString(start.bits()));
        settings.put(LONGEST_PAUSE, Long.toString(PAUSE_MS)); // of a start that fails; this class begins a stream again
        settings.putIfAbsent(LONGEST_STOP, LONGEST_STOP_MS);
        if (!oversized.isEmpty()) {
            settings.put(CursorPipeline.SETTING, CursorPipeline.json(oversized));
            settings.put("cursor.pipeline.order", "user_first"); // Debezium's filter puts whole events together
        }
        return settings;
    }

    /** Prepares the next poll to restart the stream. Rethrows errors that it cannot recover from, and transient ones. */
    private void recover(RuntimeException error) throws InterruptedException {
        Optional<ServerError> cause = serverError(error);
        boolean isTooLarge = cause.equals(Optional.of(ServerError.BSONObjectTooLarge));
        boolean isLost = cause.filter(ResumePoint::isLoss).isPresent();
        boolean isStartFailure = error instanceof DebeziumException; // it cannot resume, for whatever reason
        if (!isTooLarge && !isLost && !isStartFailure) {
            if (!(error instanceof RetriableException)) throw error;
            beginAgain(error);
            return;
        }
        ResumePoint point = point();
        point.requireHistory(source);
        if (++attempts > MOST_ATTEMPTS) throw error;
        close();
        oversized.values().removeIf(time -> point.time().isAfter(time));
        int known = oversized.size();
        long end = System.nanoTime() + FIRST_SEARCH_NS;
        Optional<OversizedSearch.Match> match = search(point, end);
        while (match.isPresent()) { // where there is one, more may follow
            LOGGER.warn("the change of {} is too large for a change stream, so the document is read", match.get());
            oversized.put(match.get().token(), match.get().time());
            end = Math.min(end, System.nanoTime() + NEXT_SEARCH_NS);
            match = search(match.get().passed(), end);
        }
        if (oversized.size() > known) attempts = 0;
        else Thread.sleep(PAUSE_MS);
    }

    /** Soon, as most errors pass with an election; Debezium itself would do nothing for its longest pause. */
    private void beginAgain(RuntimeException error) {
        close();
        LOGGER.warn(
                "the stream ended, and begins again in {} ms: {}",
                pauseMs,
                rootCause(error).toString());
        beginNs = System.nanoTime() + Duration.ofMillis(pauseMs).toNanos();
        long longest = Long.parseLong(configuration.getOrDefault(LONGEST_PAUSE, LONGEST_PAUSE_MS));
        pauseMs = Math.max(PAUSE_MS, Math.min(2 * pauseMs, longest));
    }

    private Optional<OversizedSearch.Match> search(ResumePoint point, long end) {
        try {
            return new OversizedSearch(source, oversized.keySet()).after(point, end);
        } catch (MongoException error) {
            if (!ReadFault.isTransient(error)) throw error;
            LOGGER.warn("cannot search for the source's oversized event: {}", ReadFault.message(error));
            return Optional.empty();
        }
    }

    private static Throwable rootCause(Throwable error) {
        return error.getCause() == null ? error : rootCause(error.getCause());
    }

    private static Optional<ServerError> serverError(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MongoException fault) return ServerError.of(fault.getCode());
        }
        return Optional.empty();
    }

    public void commitRecord(SourceRecord record, RecordMetadata metadata) throws InterruptedException {
        DebeziumTask current = task; // an error can end it in the meantime
        if (current != null) current.commitRecord(record, metadata);
    }

    public void commit() throws InterruptedException {
        DebeziumTask current = task;
        if (current != null) current.commit();
    }

    @Override
    public void close() {
        if (queue != null) queue.close();
        if (task != null) task.stop();
        queue = null;
        task = null;
    }
}
