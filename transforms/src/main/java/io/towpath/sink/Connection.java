package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.towpath.connector.Closing;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import io.towpath.sink.ddl.Barrier;
import io.towpath.sink.ddl.SchemaChanges;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** A task's connection to the destination, and the partitions that it owns there. */
final class Connection implements AutoCloseable {
    /** After these a topic's collection has other documents, or none. */
    private static final Set<Kind> REPLACING = Set.of(Kind.CREATE, Kind.DROP, Kind.RENAME, Kind.REPLACE);
    /** Before a task that a cutover has stopped tries again, unless its worker ends it. */
    private static final long STOPPED_MS = 5_000;

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
    private final Barriers barriers;
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
        this.barriers = new Barriers(
                settings,
                context,
                metrics,
                new SchemaChanges(
                        settings.pipeline(),
                        settings.task(),
                        settings.schema(),
                        Destination.DATABASE,
                        () -> Destination.connectForLong(config),
                        error -> Verdict.of(error) == Verdict.TRANSIENT));
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

    /** As {@link Offsets#guard}. Returns the partitions that are consumed again, as the destination has lost what was applied of them. */
    Set<TopicPartition> guard() {
        offsets.guard(context);
        Set<TopicPartition> takenBack = offsets.takenBack();
        if (!takenBack.isEmpty()) writer.startOver();
        stale.addAll(takenBack);
        return takenBack;
    }

    /** Writes these records, up to the first schema change in each partition. Throws as {@link BatchWriter#write}. */
    void write(List<SinkRecord> records, long untilNs) {
        Map<TopicPartition, Barrier> reached = barriers.in(records, offsets);
        if (writer.write(Barriers.before(reached, records), reached, untilNs)) barriers.arrived(reached);
    }

    /** Moves partitions on whose schema change has been made or left out. Connect seeks when the task has taken what it delivered. */
    void passBarriers() {
        Barriers.Moved moved = barriers.check(client, offsets);
        if (moved.isDisplaced()) writer.startOver();
        moved.made().forEach(this::changed);
        for (TopicPartition partition : moved.partitions()) {
            stale.add(partition);
            context.offset(partition, offsets.next(partition).orElseThrow());
        }
    }

    /** What is known of the documents of a change's topics is no longer so. */
    private void changed(SchemaChange change) {
        if (!REPLACING.contains(change.kind())) return;
        for (String topic : change.partitions().keySet()) {
            if (!settings.schema().topics().test(topic)) continue;
            boolean isFilled = change.kind() == Kind.RENAME
                    && !settings.schema().replays(change)
                    && change.topic(change.to()).filter(topic::equals).isPresent();
            writes.changed(topic, isFilled);
            writer.forget(writes.namespace(topic));
        }
    }

    /** Marks partitions to be taken over. */
    void assign(Collection<TopicPartition> partitions) {
        barriers.forget(partitions);
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
                requireNotStopped();
                offsets.requireLog(unopened);
                for (TopicPartition partition : List.copyOf(unopened)) {
                    context.offset(partition, offsets.next(partition).orElseThrow());
                    unopened.remove(partition);
                }
            } catch (Unanswered error) {
                metrics.retried(error);
                retry.pause("take partitions over", error);
            } catch (MongoException error) {
                if (Verdict.of(error) != Verdict.TRANSIENT)
                    throw new ConnectException(
                            "cannot take partitions over at the destination: " + Verdict.message(error), error);
                metrics.retried(error);
                silence.after(error);
                retry.pause("take partitions over at the destination", error);
            }
        }
    }

    /** A zombie that takes partitions over after a cutover would own them, although the cutover has fenced it before. */
    private void requireNotStopped() {
        if (!CutoverMarker.hasStopped(client, settings.pipeline())) return;
        context.timeout(STOPPED_MS);
        throw new RetriableException(
                "the destination is primary since a cutover or a takeover of '%s', so its sink stays stopped"
                        .formatted(settings.pipeline()));
    }

    private void begin() {
        Destination.requireTransactions(client);
        session = client.startSession();
        transaction = new Transaction(client, session, settings.transactions(), offsets, deadLetters, metrics);
        writer = new BatchWriter(settings, context, writes, offsets, deadLetters, transaction, metrics, silence);
    }

    /** The records of partitions that are neither stale nor wait. The others are delivered again from the destination's position. */
    List<SinkRecord> awaited(Collection<SinkRecord> records) {
        stale.forEach(
                partition -> context.offset(partition, offsets.next(partition).orElseThrow()));
        if (stale.isEmpty()) return barriers.withoutStanding(List.copyOf(records));
        return barriers.withoutStanding(records.stream()
                .filter(record -> !stale.contains(Records.partition(record)))
                .toList());
    }

    /** Connect has revoked these partitions. */
    void revoke(Collection<TopicPartition> partitions) {
        if (transaction != null) {
            transaction.abort();
            writer.partitionsRevoked();
        }
        barriers.forget(partitions);
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
                barriers,
                transaction == null ? null : transaction::abort,
                () -> facts.close(transaction != null),
                session,
                client);
    }
}
