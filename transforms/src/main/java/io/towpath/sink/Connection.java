package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.connector.Closing;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** A task's connection to the destination, and the partitions that it owns there. */
final class Connection implements AutoCloseable {
    private final SinkSettings settings;
    private final MongoSinkConfig config;
    private final SinkTaskContext context;
    private final LogGuard log;
    private final DeadLetters deadLetters;
    private final SinkMetrics metrics;
    private final TaskFacts facts;
    private final Writes writes;
    private final Silence silence;
    private final DeleteGuard guard;
    private MongoClient client;
    private ClientSession session;
    private Offsets offsets;
    private Transaction transaction;
    private BatchWriter writer;
    /** Partitions of this task that it has not taken over at the destination yet. */
    private final Set<TopicPartition> unopened = new LinkedHashSet<>();
    /** Partitions of which Connect may still hold records from before the task's seek: it delivers a failed batch again. */
    private final Set<TopicPartition> stale = new HashSet<>();

    Connection(
            SinkSettings settings,
            MongoSinkConfig config,
            SinkTaskContext context,
            LogGuard log,
            DeadLetters deadLetters,
            SinkMetrics metrics,
            TaskFacts facts) {
        this.settings = settings;
        this.config = config;
        this.context = context;
        this.log = log;
        this.deadLetters = deadLetters;
        this.metrics = metrics;
        this.facts = facts;
        this.writes = new Writes(config);
        this.silence = new Silence(settings.silenceMs());
        this.guard = new DeleteGuard(settings.log());
        connect();
    }

    private void connect() {
        client = Destination.connect(config, silence.ms());
        facts.writeTo(client);
        offsets = new Offsets(settings.pipeline(), client, guard, log);
    }

    /** Reconnects with the current time limit. Taking over all partitions again ends a transaction that the old session may have left. */
    void reconnect() {
        assign(offsets.all().keySet());
        if (session != null) session.close();
        session = null;
        transaction = null;
        client.close();
        connect();
    }

    Offsets offsets() {
        return offsets;
    }

    /** Throws as {@link BatchWriter#write}. */
    void write(List<SinkRecord> records, long untilNs) {
        writer.write(records, untilNs);
    }

    /** Marks partitions to be taken over. */
    void assign(Collection<TopicPartition> partitions) {
        unopened.addAll(partitions);
        stale.addAll(partitions);
    }

    /** Connect has dropped what it had delivered of these, and seeks before it reads on. */
    void seeked(Collection<TopicPartition> partitions) {
        stale.removeAll(partitions);
    }

    /** The same for all partitions. */
    void seeked() {
        stale.clear();
    }

    /** Takes over what is assigned. Throws {@link RetriableException} when it takes too long, and {@link Silence.TooShort}. */
    void takeOver() {
        Retry retry = new Retry(settings.retryTimeout(), context);
        while (!unopened.isEmpty()) {
            try {
                if (session == null) begin();
                for (TopicPartition partition : unopened) {
                    offsets.open(partition, session.getServerSession().getIdentifier());
                    silence.ended();
                }
                offsets.requireLog(unopened);
                for (TopicPartition partition : List.copyOf(unopened)) {
                    context.offset(partition, offsets.next(partition).orElseThrow());
                    unopened.remove(partition);
                }
            } catch (Unanswered error) {
                metrics.retried(Verdict.message(error));
                retry.pause("take partitions over", error);
            } catch (MongoException error) {
                if (Verdict.of(error) != Verdict.TRANSIENT)
                    throw new ConnectException(
                            "cannot take partitions over at the destination: " + Verdict.message(error), error);
                metrics.retried(Verdict.message(error));
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

    /** The records of partitions that are not stale. The others are delivered again from the destination's position. */
    List<SinkRecord> withoutStale(Collection<SinkRecord> records) {
        stale.forEach(
                partition -> context.offset(partition, offsets.next(partition).orElseThrow()));
        if (stale.isEmpty()) return List.copyOf(records);
        return records.stream()
                .filter(record -> !stale.contains(Records.partition(record)))
                .toList();
    }

    /** Connect has revoked these partitions. */
    void revoke(Collection<TopicPartition> partitions) {
        if (transaction != null) {
            transaction.abort();
            writer.partitionsRevoked();
        }
        for (TopicPartition partition : partitions) {
            unopened.remove(partition);
            stale.remove(partition);
            offsets.forget(partition);
            deadLetters.forget(partition);
        }
    }

    @Override
    public void close() {
        Closing.all(
                transaction == null ? null : transaction::abort,
                transaction == null ? null : facts::writeNow,
                session,
                client);
    }
}
