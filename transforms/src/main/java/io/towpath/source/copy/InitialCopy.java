package io.towpath.source.copy;

import io.towpath.source.progress.CollectionCopy;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Phase;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangeCopy;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;

/** The initial copy: rows of all collections, read by several threads, and how far each range is. */
public final class InitialCopy implements Phase {
    private static final long WAIT_MS = 500;
    /** Of one transaction. */
    private static final long MOST_BYTES = 8 << 20;

    private final Progress progress;
    private final Ledger ledger;
    private final CopyThreads threads;
    private final OplogWatch watch;
    private boolean over;

    public InitialCopy(Progress progress, SnapshotReads reads) {
        this.progress = progress;
        this.ledger = progress.ledger();
        this.watch = new OplogWatch(progress, reads);
        this.threads = new CopyThreads(reads, progress.name());
        watch.requireFeasible();
        ledger.rows().copies().forEach((namespace, copy) -> copy.ifPresent(begun -> resume(namespace, begun)));
        ledger.rows().copies().forEach((namespace, copy) -> {
            if (copy.isEmpty()) threads.cut(namespace);
        });
        threads.start();
    }

    private void resume(String namespace, CollectionCopy copy) {
        for (int index = 0; index < copy.ranges().size(); index++) {
            RangeCopy range = copy.range(index);
            if (!range.isDone()) threads.read(new RangeRead.Range(namespace, copy.plan(), index, range.after()));
        }
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> records = new ArrayList<>();
        if (watch.updateCopy()) records.add(ledger.rootRecord());
        long bytes = 0;
        CopySteps.Step step = ledger.rows().isCopied() ? null : threads.next(WAIT_MS);
        while (step != null) {
            take(step, records);
            bytes += step.bytes();
            step = bytes < MOST_BYTES ? threads.next(0) : null;
        }
        if (ledger.rows().isCopied()) {
            ledger.beginStream();
            records.add(ledger.rootRecord());
            over = true;
        }
        return records.isEmpty() ? null : records;
    }

    private void take(CopySteps.Step step, List<SourceRecord> records) {
        if (step instanceof CopySteps.Copied copied) {
            records.addAll(Rows.copy(copied.page(), progress));
        } else if (step instanceof CopySteps.Planned planned) {
            records.add(ledger.plan(planned.namespace(), planned.plan()));
        } else if (step instanceof CopySteps.Retried retried) {
            ledger.rows().range(retried.namespace(), retried.range()).retried(retried.reason());
            progress.metrics().retried(retried.namespace() + ": " + retried.reason());
            records.add(ledger.rangeRecord(retried.namespace(), retried.range()));
        } else if (step instanceof CopySteps.Failed failed) {
            throw new ConnectException(
                    "%s cannot be copied from the source: %s. What is copied so far is kept; fix the cause and restart the connector"
                            .formatted(failed.namespace(), message(failed.cause())),
                    failed.cause());
        }
    }

    /** With the class's name for an Error, and where there is no message. */
    private static String message(Throwable cause) {
        return cause instanceof Error || cause.getMessage() == null ? cause.toString() : cause.getMessage();
    }

    @Override
    public boolean isOver() {
        return over;
    }

    @Override
    public void close() {
        threads.close();
    }
}
