package io.towpath.source;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;

/** The first copy: rows of all collections, read by several threads, and where each range stands. */
final class FirstCopy implements Stage {
    private static final long WAIT_MS = 500;
    /** Of one transaction. */
    private static final long MOST_BYTES = 8 << 20;

    private final Ledger ledger;
    private final CopyThreads threads;
    private final OplogWatch watch;
    private final Partitions partitions;
    private final SourceSettings settings;
    private final SourceMetrics metrics;
    private boolean over;

    FirstCopy(
            Ledger ledger,
            Partitions partitions,
            SourceCluster source,
            SourceSettings settings,
            SourceMetrics metrics) {
        this.ledger = ledger;
        this.partitions = partitions;
        this.settings = settings;
        this.metrics = metrics;
        this.watch = new OplogWatch(source, ledger, settings, metrics);
        this.threads = new CopyThreads(source, settings);
        watch.refuseHopeless();
        ledger.copies().forEach((namespace, copy) -> copy.ifPresent(begun -> goOn(namespace, begun)));
        ledger.copies().forEach((namespace, copy) -> {
            if (copy.isEmpty()) threads.cut(namespace);
        });
        threads.start();
    }

    private void goOn(String namespace, CollectionCopy copy) {
        for (int index = 0; index < copy.ranges().size(); index++) {
            RangeCopy range = copy.range(index);
            if (!range.isDone()) threads.read(namespace, copy.plan(), index, range.after());
        }
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> records = new ArrayList<>();
        if (watch.look()) records.add(ledger.rootRecord());
        long bytes = 0;
        CopyStep step = ledger.isCopied() ? null : threads.next(WAIT_MS);
        while (step != null) {
            bytes += take(step, records);
            step = bytes < MOST_BYTES ? threads.next(0) : null;
        }
        if (ledger.isCopied()) {
            ledger.beginStream();
            records.add(ledger.rootRecord());
            over = true;
        }
        return records.isEmpty() ? null : records;
    }

    private long take(CopyStep step, List<SourceRecord> records) {
        if (step instanceof Page page) {
            Rows rows = new Rows(
                    settings.name(),
                    page.namespace(),
                    partitions.of(page.namespace(), page.range()),
                    ledger.advance(page));
            rows.documents(page.documents(), page.time(), records);
            if (page.documents().isEmpty()) records.add(ledger.rangeRecord(page.namespace(), page.range()));
            metrics.copied(page);
            return page.bytes();
        } else if (step instanceof CopyStep.Planned planned) {
            records.add(ledger.plan(planned.namespace(), planned.plan()));
        } else if (step instanceof CopyStep.Trouble trouble) {
            ledger.range(trouble.namespace(), trouble.range()).troubled(trouble.reason());
            metrics.retried(trouble.namespace() + ": " + trouble.reason());
            records.add(ledger.rangeRecord(trouble.namespace(), trouble.range()));
        } else if (step instanceof CopyStep.Failed failed) {
            throw new ConnectException(
                    "%s cannot be copied from the source: %s. What is copied stays; mend the cause and restart the connector"
                            .formatted(failed.namespace(), words(failed.cause())),
                    failed.cause());
        }
        return 0;
    }

    /** The message of an Error, and of what has none, says little without its name. */
    private static String words(Throwable cause) {
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
