package io.towpath.source.copy;

import io.towpath.debezium.DebeziumStream;
import io.towpath.source.progress.CollectionCopy;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangeCopy;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A task's share of a round of the initial copy: rows, read by several threads, and how far each range is. The first task also divides the
 * collections into ranges, which the other tasks wait for. It ends the round once all tasks have committed what they have read in it.
 */
public final class InitialCopy implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(InitialCopy.class);
    private static final long WAIT_MS = 500;
    /** Instead, when the round ends: the stream waits. */
    private static final long SHORT_WAIT_MS = 20;
    /** Of one transaction. */
    private static final long MOST_BYTES = 8 << 20;

    private final Progress progress;
    private final Ledger ledger;
    private final CopyThreads threads;
    private final OplogWatch watch;
    private final CopyShare share;
    private final OtherTasks others;
    /** The collections whose ranges are being read. */
    private final Set<String> resumed = new HashSet<>();

    private boolean ending;
    private boolean over;

    public InitialCopy(Progress progress, SnapshotReads reads, OffsetStorageReader offsets) {
        this.progress = progress;
        this.ledger = progress.ledger();
        this.watch = new OplogWatch(progress, reads);
        this.threads = new CopyThreads(reads, progress.name(), ledger.start());
        this.share = reads.settings().share();
        this.others = new OtherTasks(progress, share, offsets);
        if (share.isFirst()) begin();
        threads.start();
    }

    private void begin() {
        resume();
        ledger.rows().initial().forEach((namespace, copy) -> {
            if (copy.isEmpty()) threads.cut(namespace, ledger.rows().isMixed(namespace));
        });
    }

    private void resume() {
        ledger.rows()
                .initial()
                .forEach((namespace, copy) -> copy.ifPresent(begun -> {
                    if (resumed.add(namespace)) resume(namespace, begun);
                }));
    }

    private void resume(String namespace, CollectionCopy copy) {
        for (int index = 0; index < copy.ranges().size(); index++) {
            RangeCopy range = copy.range(index);
            if (!range.isDone() && ledger.rows().has(share, namespace, index))
                threads.read(new RangeRead.Range(namespace, copy.plan(), index, range.after()));
        }
    }

    /** Records of one transaction; null when there are none yet. */
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> records = new ArrayList<>();
        if (watch.updateCopy() && share.isFirst()) records.add(ledger.rootRecord());
        if (others.isDue()) check();
        if (over) return null;
        if (!ending && watch.isRoundOver()) {
            ending = true;
            threads.end();
        }
        boolean isRead = take(records) || ledger.rows().isCopied(share);
        if (isRead && !over) end(records);
        return records.isEmpty() ? null : records;
    }

    private void check() {
        boolean continues = others.check(ending && threads.haveEnded());
        if (continues && !share.isFirst()) resume();
        over = !continues;
    }

    /** Returns whether all reports were taken of threads that had ended before. */
    private boolean take(List<SourceRecord> records) throws InterruptedException {
        boolean haveEnded = threads.haveEnded();
        long bytes = 0;
        Set<String> topics = new HashSet<>();
        CopyReports.Report report = ledger.rows().isCopied() ? null : threads.next(ending ? SHORT_WAIT_MS : WAIT_MS);
        while (report != null) {
            take(report, records);
            bytes += report.bytes();
            if (report instanceof CopyReports.Copied copied)
                topics.add(copied.page().namespace());
            if (bytes >= MOST_BYTES || topics.size() >= DebeziumStream.MOST_TOPICS || over) return false;
            report = threads.next(0);
        }
        return haveEnded;
    }

    /** The task has read its share, or of it what it reads in this round. */
    private void end(List<SourceRecord> records) {
        if (!share.isFirst()) {
            records.add(progress.partitions().endRecord(share.task(), ledger.round()));
            over = true;
        } else if (ledger.rows().isCopied()) {
            ledger.beginStream();
            records.add(ledger.rootRecord());
            over = true;
        } else if (ending && others.haveEnded()) {
            records.add(ledger.catchUp());
            over = true;
        }
    }

    private void take(CopyReports.Report report, List<SourceRecord> records) {
        if (report instanceof CopyReports.Copied copied) {
            records.addAll(Rows.copy(copied.page(), progress));
        } else if (report instanceof CopyReports.Planned planned) {
            records.add(ledger.plan(planned.namespace(), planned.plan()));
        } else if (report instanceof CopyReports.Retried retried) {
            ledger.rows().range(retried.namespace(), retried.range()).retried(retried.reason());
            progress.metrics().retried(retried.cause(), retried.namespace() + ": " + retried.reason());
            records.add(ledger.rangeRecord(retried.namespace(), retried.range()));
        } else if (report instanceof CopyReports.Outdated outdated) {
            LOGGER.warn("the copy of {} starts again: {}", outdated.namespace(), outdated.reason());
            progress.metrics().retried(outdated.cause(), outdated.namespace() + ": " + outdated.reason());
            records.addAll(ledger.copyAnew(outdated.namespace()));
            over = true; // the task begins another one, whose threads know nothing of the former plan
        } else if (report instanceof CopyReports.Failed failed) {
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

    /** Whether the task has nothing left to read in this round; or, of the first, whether another object has to continue it. */
    public boolean isOver() {
        return over;
    }

    @Override
    public void close() {
        threads.close();
    }
}
