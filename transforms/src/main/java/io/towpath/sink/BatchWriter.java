package io.towpath.sink;

import com.mongodb.MongoException;
import io.towpath.net.ServerError;
import io.towpath.record.ContractException;
import io.towpath.sink.Offsets.Drift;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.bson.BSONException;

/** Applies what Connect polled: stretch by stretch, each in one transaction, retried until it is applied. */
final class BatchWriter {
    private static final ConnectException DISPLACED =
            new ConnectException("the offsets at the destination are not where they were left");
    private static final int SMALL = 64; // a transaction that is slow or conflicts is not made smaller than this

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
    /** Documents with a folded write that the destination refused: single writes will show which record it refuses. */
    private final Set<DocumentId> apart = new HashSet<>();

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
        this.displacement = new Displacement(settings, context, offsets, metrics, retry);
    }

    /**
     * Returns when all is applied, or will come again. Throws {@link RetriableException} when it takes too long, after at least one
     * attempt: when the same records come again, it skips those that are applied.
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
                Collection<Drift> drifts = displacement.drifts(stretch);
                if (drifts.contains(Drift.BEHIND)) {
                    context.offset(offsets.all());
                    return;
                }
                if (drifts.contains(Drift.AHEAD)) retry.succeeded();
                else if (outcome instanceof Outcome.Displaced) retry.pause("write to the destination", DISPLACED);
            }
        }
    }

    /** Kafka revokes the partitions of a task that does not poll for too long. */
    private RuntimeException overdue(List<SinkRecord> records) {
        context.timeout(MongoSinkTask.AT_ONCE_MS);
        return new RetriableException(
                "the destination is slow: %2$d of %1$d records are still to be written, and will be at once"
                        .formatted(
                                records.size(),
                                records.stream().filter(this::isNext).count()));
    }

    private List<List<Waves.Bulk>> waves(List<SinkRecord> stretch) {
        List<RecordedChange> changes = new ArrayList<>(stretch.size());
        for (SinkRecord record : stretch) {
            if (deadLetters.contains(record)) continue;
            try {
                if (!settings.log().skips(record)) changes.add(writes.read(record));
            } catch (DataException | ContractException | BSONException error) {
                deadLetters.add(record, writes.namespace(record), 0, error.getMessage());
            }
        }
        if (settings.fold() && !inSourceOrder) return Waves.of(Folder.fold(changes, apart));
        List<Write> writes = Folder.alone(changes);
        return inSourceOrder ? List.of(Waves.inOrder(SourceOrder.of(writes))) : Waves.of(writes);
    }

    private void applied(Outcome.Applied applied) {
        retry.succeeded();
        silence.ended();
        displacement.resolved();
        inSourceOrder = false;
        apart.clear();
        sizes.grow(applied.openNs());
    }

    private void refused(Outcome.Refused refused, List<SinkRecord> stretch) {
        Write write = refused.write();
        if (refused.verdict() == Verdict.PRESENT) {
            writes.markPresent(write.record());
        } else if (refused.code() == ServerError.DuplicateKey.code() && !inSourceOrder) {
            inSourceOrder =
                    true; // in classes, a write that takes a unique value may have come before the one that frees it
        } else if (write.isFolded()) {
            apart.add(write.document());
            sizes.shrink(stretch.size(), 1);
        } else {
            deadLetters.add(write.record(), write.namespace().getFullName(), refused.code(), refused.reason());
            if (refused.code() != ServerError.DuplicateKey.code()) sizes.shrink(stretch.size(), 1);
        }
    }

    private void failed(Outcome.Failed failed, List<SinkRecord> stretch) {
        RuntimeException error = failed.error();
        switch (failed.verdict()) {
            case TRANSIENT -> {
                metrics.retried(Reason.of(error));
                if (!isCommitUnknown(error)) sizes.shrink(stretch.size(), SMALL);
                silence.after(error);
                retry.pause("write to the destination", error);
            }
            case UNCLEAR -> {
                if (failed.records() == 0) throw hopeless(error);
                if (failed.records() == 1) addDeadLetter(stretch, error);
                else sizes.shrink(stretch.size(), 1);
            }
            default -> throw hopeless(error);
        }
    }

    /** In that case the server had the whole transaction, and a smaller one would have waited as long. */
    private static boolean isCommitUnknown(RuntimeException error) {
        return error instanceof MongoException known
                && known.hasErrorLabel(MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL);
    }

    /** Of the only record of a stretch that was to be written. */
    private void addDeadLetter(List<SinkRecord> stretch, RuntimeException error) {
        SinkRecord record = stretch.stream()
                .filter(each -> !deadLetters.contains(each) && !settings.log().skips(each))
                .findFirst()
                .orElseThrow();
        int code = error instanceof MongoException known ? Math.max(0, known.getCode()) : 0;
        deadLetters.add(record, writes.namespace(record), code, Reason.of(error));
    }

    static ConnectException hopeless(RuntimeException error) {
        boolean standalone = error instanceof MongoException known && ServerError.IllegalOperation.is(known);
        return new ConnectException(
                "the destination does not support such writes: "
                        + (standalone ? Destination.NEEDS_REPLICA_SET : Reason.of(error)),
                error);
    }

    /** Connect revoked partitions. */
    void partitionsRevoked() {
        displacement.resolved();
    }

    private boolean isNext(SinkRecord record) {
        OptionalLong next = offsets.next(partition(record));
        return next.isPresent() && record.kafkaOffset() >= next.getAsLong();
    }

    static TopicPartition partition(SinkRecord record) {
        return new TopicPartition(record.topic(), record.kafkaPartition());
    }
}
