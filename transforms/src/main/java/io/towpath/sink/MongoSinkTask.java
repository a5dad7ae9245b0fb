package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.connector.Closing;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** The task of {@link MongoSink}. */
public final class MongoSinkTask extends SinkTask {
    private static final String DEAD_LETTERS = "errors.deadletterqueue.topic.name";
    /** Connect polls for so long at most when it is to come back with or without records. */
    static final long AT_ONCE_MS = 1;

    private final Function<LogSettings, LogGuard> logs;
    private SinkSettings settings;
    private MongoSinkConfig config;
    private Silence silence;
    private DeleteGuard guard;
    private LogGuard log;
    private MongoClient client;
    private ClientSession session;
    private Writes writes;
    private Offsets offsets;
    private DeadLetters deadLetters;
    private Transaction transaction;
    private BatchWriter writer;
    private SinkMetrics metrics;
    private TaskFacts facts;
    private Polled polled;
    /** Partitions given to this task, that it has not taken over at the destination yet. */
    private final Set<TopicPartition> unopened = new LinkedHashSet<>();
    /** Partitions of which Connect may hold records from before it was told where to read on: it hands a failed batch over once more. */
    private final Set<TopicPartition> stale = new HashSet<>();
    /** What the batch at hand has taken so far. */
    private long spentNs;

    public MongoSinkTask() {
        this(LogGuard::of);
    }

    MongoSinkTask(Function<LogSettings, LogGuard> logs) {
        this.logs = logs;
    }

    @Override
    public void start(Map<String, String> properties) {
        settings = SinkSettings.of(properties);
        config = new MongoSinkConfig(properties);
        silence = new Silence(settings.silenceMs());
        guard = new DeleteGuard(settings.log());
        log = logs.apply(settings.log());
        writes = new Writes(config);
        metrics = new SinkMetrics(settings.pipeline(), settings.task());
        polled = new Polled(settings.pollRecords(), settings.batchRecords(), settings.batchBytes());
        deadLetters = new DeadLetters(reporter(properties), settings.refusedPercent());
        facts = new TaskFacts(settings, metrics);
        connect();
    }

    private void connect() {
        client = Destination.connect(config, silence.ms());
        facts.writeTo(client);
        offsets = new Offsets(settings.pipeline(), client, guard, log);
    }

    /** With the patience of now. All partitions are taken over once more, which ends what may be left of the old session's transaction. */
    private void reconnect() {
        Set<TopicPartition> ours = offsets.all().keySet();
        polled.forget(ours);
        unopened.addAll(ours);
        stale.addAll(ours);
        if (session != null) session.close();
        session = null;
        transaction = null;
        client.close();
        connect();
    }

    /** Connect's reporter says nothing to anyone when no topic is named. */
    private ErrantRecordReporter reporter(Map<String, String> properties) {
        return properties.getOrDefault(DEAD_LETTERS, "").isBlank() ? null : context.errantRecordReporter();
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        unopened.addAll(partitions);
        stale.addAll(partitions);
        polled.forget(partitions);
        try {
            takeOver();
            stale.removeAll(partitions); // Connect seeks before it reads anything of them
        } catch (Silence.TooShort error) {
            reconnect();
        } catch (RetriableException error) {
            // an error here would end the task; put tries again
        }
    }

    private void takeOver() {
        Retry retry = new Retry(settings.retryTimeout(), context);
        while (!unopened.isEmpty()) {
            try {
                if (session == null) begin();
                for (TopicPartition partition : unopened) {
                    offsets.open(partition, session.getServerSession().getIdentifier());
                    silence.answered();
                }
                offsets.requireLog(unopened);
                for (TopicPartition partition : List.copyOf(unopened)) {
                    context.offset(partition, offsets.next(partition).orElseThrow());
                    unopened.remove(partition);
                }
            } catch (LogGuard.Unanswered error) {
                metrics.retried(Reason.of(error));
                retry.pause("take partitions over", error);
            } catch (MongoException error) {
                if (Verdict.of(error) != Verdict.PASSING)
                    throw new ConnectException(
                            "cannot take partitions over at the destination: " + Reason.of(error), error);
                metrics.retried(Reason.of(error));
                silence.after(error);
                retry.pause("take partitions over at the destination", error);
            }
        }
    }

    private void begin() {
        Destination.requireTransactions(client);
        session = client.startSession();
        transaction = new Transaction(client, session, settings.transactions(), offsets, deadLetters, metrics);
        writer = new BatchWriter(settings, context, writes, offsets, deadLetters, transaction, metrics, silence);
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        long untilNs = System.nanoTime() + settings.putTime().toNanos();
        try {
            takeOver();
            offsets.guard(context);
            List<SinkRecord> ready = inPlace(records);
            offsets.came(ready);
            polled.add(ready);
            if (polled.isMoreThere()) context.timeout(AT_ONCE_MS);
            else write(untilNs);
            stale.clear(); // Connect lets go of what it handed over, and seeks before it reads on
        } catch (Silence.TooShort error) {
            reconnect();
            context.timeout(AT_ONCE_MS);
            throw error;
        } finally {
            facts.write();
        }
    }

    /** Those that follow what is polled. All of a stale partition is read again, from where the destination is. */
    private List<SinkRecord> inPlace(Collection<SinkRecord> records) {
        stale.forEach(
                partition -> context.offset(partition, offsets.next(partition).orElseThrow()));
        return records.stream()
                .filter(record -> !stale.contains(new TopicPartition(record.topic(), record.kafkaPartition())))
                .toList();
    }

    private void write(long untilNs) {
        List<SinkRecord> records = polled.all();
        if (records.isEmpty()) return;
        long began = System.nanoTime();
        log.ask();
        try {
            writer.write(records, untilNs);
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

    /** What Connect commits tells others how far this is; where to go on is in the destination. */
    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> polled) {
        Map<TopicPartition, OffsetAndMetadata> applied = new HashMap<>();
        polled.forEach((partition, upTo) -> offsets.next(partition)
                .ifPresent(next -> applied.put(partition, new OffsetAndMetadata(Math.min(next, upTo.offset())))));
        return applied;
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        if (transaction != null) {
            transaction.abort();
            writer.undisputed();
        }
        polled.forget(partitions);
        for (TopicPartition partition : partitions) {
            unopened.remove(partition);
            stale.remove(partition);
            offsets.forget(partition);
            deadLetters.forget(partition);
        }
    }

    @Override
    public void stop() {
        Closing.all(
                transaction == null ? null : transaction::abort,
                transaction == null ? null : facts::writeNow,
                session,
                metrics,
                client,
                log);
    }

    @Override
    public String version() {
        return MongoSink.versionOfJar();
    }
}
