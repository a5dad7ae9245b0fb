package io.towpath.sink;

import com.mongodb.MongoException;
import io.towpath.sink.Offsets.Fenced;
import io.towpath.sink.Offsets.Standing;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.bson.BSONException;

/** Applies what Connect polled: stretch by stretch, each in one transaction, tried again until it is applied. */
final class BatchWriter {
    private static final ConnectException DISPLACED =
            new ConnectException("the offsets at the destination are not where they were left");
    private static final int SMALL = 64; // what is slow or in others' way is not made smaller than this

    private static final long DISPLACED_PAUSE_MS = 500;

    private final SinkSettings settings;
    private final SinkTaskContext context;
    private final Writes writes;
    private final Offsets offsets;
    private final DeadLetters deadLetters;
    private final Transaction transaction;
    private final SinkMetrics metrics;
    private final Silence silence;
    private final Retry retry;
    private final StretchSize sizes;
    private boolean inSourceOrder;
    /** Documents of which a folded write was refused: it has to be seen which of its records is. */
    private final Set<Document> apart = new HashSet<>();

    private long displacedSince = -1;

    BatchWriter(
            SinkSettings settings,
            SinkTaskContext context,
            Writes writes,
            Offsets offsets,
            DeadLetters deadLetters,
            Transaction transaction,
            SinkMetrics metrics,
            Silence silence) {
        this.settings = settings;
        this.context = context;
        this.writes = writes;
        this.offsets = offsets;
        this.deadLetters = deadLetters;
        this.transaction = transaction;
        this.metrics = metrics;
        this.silence = silence;
        this.retry = new Retry(settings.retryTimeout(), context);
        this.sizes = new StretchSize(settings.batchBytes(), settings.batchRecords());
    }

    /**
     * Returns when all is applied, or will be read again. Throws {@link RetriableException} when it takes too long, after one attempt at
     * least: what is applied by then is passed over when the same records come again.
     *
     * @param untilNs no transaction is begun after this, by {@link System#nanoTime}
     */
    void write(List<SinkRecord> records, long untilNs) {
        deadLetters.expect((int) records.stream().filter(this::isNext).count());
        retry.succeeded();
        boolean begun = false;
        int from = 0;
        while (from < records.size()) {
            int end = sizes.end(records, from);
            List<SinkRecord> stretch =
                    records.subList(from, end).stream().filter(this::isNext).toList();
            if (stretch.isEmpty()) {
                from = end;
                continue;
            }
            if (begun && System.nanoTime() - untilNs >= 0) throw overdue(records);
            begun = true;
            Outcome outcome = transaction.attempt(stretch, waves(stretch));
            if (outcome instanceof Outcome.Applied applied) {
                applied(applied);
                from = end;
            } else if (outcome instanceof Outcome.Refused refused) {
                refused(refused, stretch);
            } else {
                if (outcome instanceof Outcome.Failed failed) failed(failed, stretch);
                Collection<Standing> standings = standings(stretch);
                if (standings.contains(Standing.BEHIND)) {
                    context.offset(offsets.all());
                    return;
                }
                if (standings.contains(Standing.AHEAD)) retry.succeeded();
                else if (outcome instanceof Outcome.Displaced) retry.pause("write to the destination", DISPLACED);
            }
        }
    }

    /** Kafka takes the partitions away from a task that does not come back for too long. */
    private RuntimeException overdue(List<SinkRecord> records) {
        context.timeout(MongoSinkTask.AT_ONCE_MS);
        return new RetriableException(
                "the destination is slow: of %d records %d are still to be written, and will be at once"
                        .formatted(
                                records.size(),
                                records.stream().filter(this::isNext).count()));
    }

    private List<List<Waves.Bulk>> waves(List<SinkRecord> stretch) {
        List<RecordedChange> changes = new ArrayList<>(stretch.size());
        for (SinkRecord record : stretch) {
            if (deadLetters.contains(record)) continue;
            try {
                if (!settings.log().passesOver(record)) changes.add(writes.read(record));
            } catch (DataException | BSONException error) {
                deadLetters.setAside(record, writes.namespace(record), 0, error.getMessage());
            }
        }
        if (settings.fold() && !inSourceOrder) return Waves.of(Folder.fold(changes, apart));
        List<Write> alone = Folder.alone(changes);
        return inSourceOrder ? List.of(Waves.inOrder(SourceOrder.of(alone))) : Waves.of(alone);
    }

    private void applied(Outcome.Applied applied) {
        retry.succeeded();
        silence.answered();
        undisputed();
        inSourceOrder = false;
        apart.clear();
        sizes.grow(applied.openNs());
    }

    private void refused(Outcome.Refused refused, List<SinkRecord> stretch) {
        Write write = refused.write();
        if (refused.verdict() == Verdict.PRESENT) {
            writes.foundPresent(write.record());
        } else if (refused.code() == Verdict.DUPLICATE_KEY && !inSourceOrder) {
            inSourceOrder = true; // by classes, what takes a unique value may have come before what frees it
        } else if (write.isFolded()) {
            apart.add(write.document());
            sizes.shrink(stretch.size(), 1);
        } else {
            deadLetters.setAside(write.record(), write.namespace().getFullName(), refused.code(), refused.reason());
            if (refused.code() != Verdict.DUPLICATE_KEY) sizes.shrink(stretch.size(), 1);
        }
    }

    private void failed(Outcome.Failed failed, List<SinkRecord> stretch) {
        RuntimeException error = failed.error();
        switch (failed.verdict()) {
            case PASSING -> {
                metrics.retried(Reason.of(error));
                if (!isCommitUnknown(error)) sizes.shrink(stretch.size(), SMALL);
                silence.after(error);
                retry.pause("write to the destination", error);
            }
            case UNCLEAR -> {
                if (failed.records() == 0) throw hopeless(error);
                if (failed.records() == 1) setAsideTheOne(stretch, error);
                else sizes.shrink(stretch.size(), 1);
            }
            default -> throw hopeless(error);
        }
    }

    /** Then the server had all of it, and a smaller one would have waited as long. */
    private static boolean isCommitUnknown(RuntimeException error) {
        return error instanceof MongoException known
                && known.hasErrorLabel(MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL);
    }

    private void setAsideTheOne(List<SinkRecord> stretch, RuntimeException error) {
        SinkRecord record = stretch.stream()
                .filter(each -> !deadLetters.contains(each) && !settings.log().passesOver(each))
                .findFirst()
                .orElseThrow();
        int code = error instanceof MongoException known ? Math.max(0, known.getCode()) : 0;
        deadLetters.setAside(record, writes.namespace(record), code, Reason.of(error));
    }

    private static ConnectException hopeless(RuntimeException error) {
        boolean standalone = error instanceof MongoException known && known.getCode() == Verdict.NO_TRANSACTIONS;
        return new ConnectException(
                "the destination takes no such writes: "
                        + (standalone ? Destination.NEEDS_REPLICA_SET : Reason.of(error)),
                error);
    }

    /** Learn where the destination is: a commit thought to have failed may not have, and a failover may have undone one. */
    private Collection<Standing> standings(List<SinkRecord> stretch) {
        Set<TopicPartition> partitions =
                stretch.stream().map(BatchWriter::partition).collect(Collectors.toSet());
        while (true) {
            try {
                return offsets.standing(partitions).values();
            } catch (Fenced fenced) {
                throw displaced(fenced);
            } catch (MongoException error) {
                if (Verdict.of(error) != Verdict.PASSING) throw hopeless(error);
                metrics.retried(Reason.of(error));
                retry.pause("read the offsets at the destination", error);
            }
        }
    }

    /** A partition was taken away, so what another task had taken over is that one's by right. */
    void undisputed() {
        displacedSince = -1;
    }

    /** Connect takes the partition away when it polls Kafka again. When it does not, two connectors write as one pipeline. */
    private RuntimeException displaced(Fenced fenced) {
        String what = "another task has taken over %s, so this one writes nothing more of it: "
                .formatted(fenced.getMessage());
        long now = System.nanoTime();
        if (displacedSince < 0) displacedSince = now;
        if (now - displacedSince > settings.retryTimeout().toNanos()) {
            return new ConnectException(
                    what + "%s '%s' is used by two connectors".formatted(SinkSettings.PIPELINE, settings.pipeline()));
        }
        context.timeout(DISPLACED_PAUSE_MS);
        return new RetriableException(what + "it was cut off from Kafka for too long");
    }

    private boolean isNext(SinkRecord record) {
        OptionalLong next = offsets.next(partition(record));
        return next.isPresent() && record.kafkaOffset() >= next.getAsLong();
    }

    private static TopicPartition partition(SinkRecord record) {
        return new TopicPartition(record.topic(), record.kafkaPartition());
    }
}
