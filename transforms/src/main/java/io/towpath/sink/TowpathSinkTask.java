package io.towpath.sink;

import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.connector.Closing;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** The task of {@link MongoSink}. */
public final class TowpathSinkTask extends SinkTask {
    private static final String DEAD_LETTERS = "errors.deadletterqueue.topic.name";
    /** The timeout of a poll after which Connect is to call the task again, with or without records. */
    static final long AT_ONCE_MS = 1;

    /** Before Connect delivers records again whose chunks could not be read. */
    private static final long AGAIN_MS = 1_000;

    private final Function<LogSettings, LogGuard> logs;
    private SinkSettings settings;
    private LogGuard log;
    private ChunkedRecords chunks;
    private Connection connection;
    private SinkMetrics metrics;
    private TaskFacts facts;
    private Polled polled;
    /** How long the current batch has taken so far. */
    private long spentNs;

    public TowpathSinkTask() {
        this(LogGuard::of);
    }

    TowpathSinkTask(Function<LogSettings, LogGuard> logs) {
        this.logs = logs;
    }

    @Override
    public void start(Map<String, String> properties) {
        MongoSink.requirements(properties).require(); // an earlier version may have validated the connector
        settings = SinkSettings.of(properties);
        log = logs.apply(settings.log());
        chunks = ChunkedRecords.of(settings.log().consumer());
        metrics = new SinkMetrics(
                properties.getOrDefault("name", settings.pipeline()), settings.pipeline(), settings.task());
        facts = new TaskFacts(settings, metrics);
        polled = new Polled(settings.pollRecords(), settings.batchRecords(), settings.batchBytes());
        connection = new Connection(
                settings,
                new MongoSinkConfig(properties),
                context,
                log,
                new DeadLetters(reporter(properties), settings.refusedPercent()),
                metrics,
                facts);
    }

    /** Connect's reporter reports nothing when no topic is configured. */
    private ErrantRecordReporter reporter(Map<String, String> properties) {
        return properties.getOrDefault(DEAD_LETTERS, "").isBlank() ? null : context.errantRecordReporter();
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        connection.assign(partitions);
        polled.forget(partitions);
        try {
            connection.takeOver();
            connection.seeked(partitions); // Connect seeks before it reads anything of them
        } catch (Silence.TooShort error) {
            reconnect();
        } catch (RetriableException error) {
            // an error here would end the task; put tries again
        }
    }

    private void reconnect() {
        polled.forget(connection.offsets().all().keySet());
        connection.reconnect();
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        long untilNs = System.nanoTime() + settings.putTime().toNanos();
        try {
            connection.takeOver();
            if (!polled.isMoreAvailable()) polled.forget(connection.guard()); // once a transaction is enough
            List<SinkRecord> ready = connection.awaited(records);
            connection.offsets().received(ready);
            polled.add(joined(ready));
            boolean isMoreAvailable = polled.isMoreAvailable();
            if (!isMoreAvailable) write(untilNs);
            connection.passBarriers();
            connection.seeked();
            if (isMoreAvailable) context.timeout(AT_ONCE_MS);
        } catch (Silence.TooShort error) {
            reconnect();
            context.timeout(AT_ONCE_MS);
            throw error;
        } finally {
            facts.write();
        }
    }

    private List<SinkRecord> joined(List<SinkRecord> records) {
        try {
            return chunks.joined(records);
        } catch (RetriableException error) {
            context.timeout(AGAIN_MS); // else Connect waits until it commits offsets
            throw error;
        }
    }

    private void write(long untilNs) {
        List<SinkRecord> records = polled.all();
        if (records.isEmpty()) return;
        long began = System.nanoTime();
        log.prepare();
        try {
            connection.write(records, untilNs);
        } catch (RetriableException error) {
            polled.handBack();
            throw error;
        } finally {
            spentNs += System.nanoTime() - began;
        }
        polled.written();
        metrics.took(spentNs / 1_000_000);
        spentNs = 0;
    }

    /** What Connect commits shows others how far this task is; where to resume is stored at the destination. */
    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> consumed) {
        Map<TopicPartition, OffsetAndMetadata> applied = new HashMap<>();
        consumed.forEach((partition, upTo) -> connection
                .offsets()
                .next(partition)
                .ifPresent(next -> applied.put(partition, new OffsetAndMetadata(Math.min(next, upTo.offset())))));
        return applied;
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        polled.forget(partitions);
        connection.revoke(partitions);
    }

    @Override
    public void stop() {
        Closing.all(connection, metrics, log, chunks);
    }

    @Override
    public String version() {
        return new MongoSink().version();
    }
}
