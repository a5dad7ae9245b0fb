package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import io.towpath.net.ServerError;
import io.towpath.sink.Offsets.Drift;
import io.towpath.sink.ddl.Barrier;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** Applies what Connect polled: part by part, each in one transaction, retried until it is applied. */
final class BatchWriter {
    private static final ConnectException DISPLACED =
            new ConnectException("the offsets at the destination have changed");

    private final SinkTaskContext context;
    private final WritePlan plan;
    private final Offsets offsets;
    private final DeadLetters deadLetters;
    private final Transaction transaction;
    private final SinkMetrics metrics;
    private final Silence silence;
    private final Retry retry;
    private final TransactionSize sizes;
    private final Displacement displacement;

    BatchWriter(
            SinkSettings settings,
            SinkTaskContext context,
            Writes writes,
            Offsets offsets,
            DeadLetters deadLetters,
            Transaction transaction,
            SinkMetrics metrics,
            Silence silence) {
        this.context = context;
        this.plan = new WritePlan(settings, writes, deadLetters, metrics);
        this.offsets = offsets;
        this.deadLetters = deadLetters;
        this.transaction = transaction;
        this.metrics = metrics;
        this.silence = silence;
        this.retry = new Retry(settings.retryTimeout(), context);
        this.sizes = new TransactionSize(settings.batchBytes(), settings.batchRecords());
        this.displacement = new Displacement(settings, context, offsets, metrics, retry);
    }

    /**
     * Returns when all records are applied, or will be delivered again. Throws {@link RetriableException} when it takes too long, after at
     * least one attempt: when the same records are delivered again, it skips those that are applied.
     *
     * @param barriers schema changes behind these records, at which their partitions then wait
     * @param untilNs no transaction is begun after this, by {@link System#nanoTime}
     * @return whether all is applied; else it will be delivered again
     */
    boolean write(List<SinkRecord> records, Map<TopicPartition, Barrier> barriers, long untilNs) {
        deadLetters.expect((int) records.stream()
                .filter(isNext())
                .filter(record -> !ChunkedRecords.isChunk(record))
                .count());
        retry.succeeded();
        boolean begun = false;
        int from = 0;
        while (from < records.size()) {
            int end = sizes.end(records, from);
            List<SinkRecord> part =
                    records.subList(from, end).stream().filter(isNext()).toList();
            if (part.isEmpty()) {
                from = end;
                continue;
            }
            if (begun && System.nanoTime() - untilNs >= 0) throw overdue(records);
            begun = true;
            Transaction.Outcome outcome = transaction.attempt(part, plan);
            if (outcome instanceof Transaction.Outcome.Applied applied) {
                applied(part, applied);
                from = end;
            } else if (outcome instanceof Transaction.Outcome.Refused refused) {
                if (plan.refused(refused)) sizes.shrink(part);
            } else if (outcome instanceof Transaction.Outcome.Missed missed) {
                plan.missed(missed.writes());
                sizes.shrink(part);
            } else {
                if (outcome instanceof Transaction.Outcome.Failed failed) failed(failed, part);
                Collection<Drift> drifts = displacement.drifts(
                        part.stream().map(Records::partition).collect(Collectors.toSet()));
                if (drifts.contains(Drift.BEHIND)) return goBack();
                if (drifts.contains(Drift.AHEAD)) retry.succeeded();
                else if (outcome instanceof Transaction.Outcome.Displaced)
                    retry.pause("write to the destination", DISPLACED);
            }
        }
        return barriers.isEmpty() || arrive(barriers);
    }

    /** Notes at the destination that partitions wait at schema changes. */
    private boolean arrive(Map<TopicPartition, Barrier> barriers) {
        while (true) {
            RuntimeException problem = DISPLACED;
            try {
                if (offsets.arrive(barriers)) {
                    retry.succeeded();
                    silence.ended();
                    return true;
                }
            } catch (Unanswered error) {
                problem = error;
            } catch (MongoException error) {
                if (Verdict.of(error) != Verdict.TRANSIENT) throw hopeless(error);
                silence.after(error);
                problem = error;
            }
            metrics.retried(problem);
            if (displacement.drifts(barriers.keySet()).contains(Drift.BEHIND)) return goBack();
            retry.pause("note at the destination that a schema change is reached", problem);
        }
    }

    /** The destination is further back, and the log is read again from there. */
    private boolean goBack() {
        startOver();
        context.offset(offsets.all());
        return false;
    }

    /** Kafka revokes the partitions of a task that does not poll for too long. */
    private RuntimeException overdue(List<SinkRecord> records) {
        context.timeout(TowpathSinkTask.AT_ONCE_MS);
        return new RetriableException(
                "the destination is slow: %2$d of %1$d records are not written yet; the sink continues at once"
                        .formatted(
                                records.size(),
                                records.stream().filter(isNext()).count()));
    }

    private void applied(List<SinkRecord> part, Transaction.Outcome.Applied applied) {
        retry.succeeded();
        silence.ended();
        displacement.resolved();
        plan.applied();
        sizes.applied(part, applied.openNs());
    }

    private void failed(Transaction.Outcome.Failed failed, List<SinkRecord> part) {
        RuntimeException error = failed.error();
        switch (failed.verdict()) {
            case TRANSIENT -> {
                metrics.retried(error);
                if (Verdict.isTooLarge(error)) sizes.shrink(part);
                else if (!isCommitUnknown(error)) sizes.shrinkUnlessSmall(part);
                silence.after(error);
                retry.pause("write to the destination", error);
            }
            case UNCLEAR -> {
                if (failed.records() == 0) throw hopeless(error);
                if (failed.records() == 1) plan.addDeadLetter(part, error);
                else sizes.shrink(part);
            }
            default -> throw hopeless(error);
        }
    }

    /**
     * Whether the result of the commit is unknown: the server had the whole transaction, and a smaller one would have waited just as long.
     */
    private static boolean isCommitUnknown(RuntimeException error) {
        return error instanceof MongoException mongoError
                && mongoError.hasErrorLabel(MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL);
    }

    static ConnectException hopeless(RuntimeException error) {
        if (!(error instanceof MongoException))
            return new ConnectException(
                    "cannot write to the destination: an error in the sink itself, of which no record becomes a dead letter; "
                            + "report it with `towpath doctor`: " + error,
                    error);
        boolean standalone = ServerError.IllegalOperation.is((MongoException) error);
        return new ConnectException(
                "the destination does not support such writes: "
                        + (standalone ? Destination.NEEDS_REPLICA_SET : Verdict.message(error)),
                error);
    }

    /** A schema change has been made: what is known of the documents of this namespace is no longer so. */
    void forget(MongoNamespace namespace) {
        plan.forget(namespace);
    }

    /** The log may not be continued where it ended. */
    void startOver() {
        plan.startOver();
    }

    void partitionsRevoked() {
        startOver();
        displacement.resolved();
    }

    /** Whether a record is not applied yet, by the present offsets. */
    private Predicate<SinkRecord> isNext() {
        return new Predicate<>() {
            private SinkRecord last;
            private OptionalLong next;

            @Override
            public boolean test(SinkRecord record) {
                if (last == null || !Records.areOfOnePartition(last, record))
                    next = offsets.next(Records.partition(record));
                last = record;
                return next.isPresent() && record.kafkaOffset() >= next.getAsLong();
            }
        };
    }
}
