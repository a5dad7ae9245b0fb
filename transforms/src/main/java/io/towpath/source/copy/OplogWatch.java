package io.towpath.source.copy;

import com.mongodb.MongoException;
import io.towpath.debezium.Oplog;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.RangeCopy;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.SourceMetrics;
import java.time.Duration;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches whether the source's oplog reaches back far enough: the stream begins where the initial copy began. Rejects a copy that cannot
 * end within the oplog's window, warns of one that may not, and stops one that did not.
 */
final class OplogWatch {
    private static final Logger LOGGER = LoggerFactory.getLogger(OplogWatch.class);
    private static final long PAUSE_NS = Duration.ofSeconds(10).toNanos();
    /** How long the copy has to run before its rate means anything. */
    private static final int TOO_EARLY_S = 60;
    /** The watch warns of a copy that takes this share of the rest of the window. */
    private static final double NEAR = 0.8;

    private static final String ENLARGE =
            "enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source";

    private final SourceCluster source;
    private final Ledger ledger;
    private final CopySettings settings;
    private final SourceMetrics metrics;
    private final long beganNs = System.nanoTime();
    private final long beganBytes;
    private long updatedNs = System.nanoTime() - PAUSE_NS;
    private boolean unreadable;
    private boolean warned;

    OplogWatch(SnapshotReads reads, Ledger ledger, SourceMetrics metrics) {
        this.source = reads.source();
        this.ledger = ledger;
        this.settings = reads.settings();
        this.metrics = metrics;
        this.beganBytes = copiedBytes();
    }

    /** Throws {@link ConnectException} when the rate limit alone makes a copy that has not begun take longer than the oplog's window. */
    void requireFeasible() {
        boolean isLimited = settings.bytesPerSecond() > 0 || settings.documentsPerSecond() > 0;
        if (!isLimited || ledger.rows().planned().findAny().isPresent()) return;
        Optional<Oplog> oplog = read();
        if (oplog.isEmpty()) return;
        double seconds = 0;
        for (String namespace : ledger.rows().copies().keySet()) {
            RangePlan size = RangeCutter.plan(source.collection(namespace), Long.MAX_VALUE);
            seconds += Math.max(
                    settings.bytesPerSecond() == 0 ? 0 : (double) size.bytes() / settings.bytesPerSecond(),
                    settings.documentsPerSecond() == 0 ? 0 : (double) size.documents() / settings.documentsPerSecond());
        }
        if (seconds > oplog.get().window()) {
            throw new ConnectException(
                    "TWP-COPY-TOO-SLOW: the initial copy would take %.1f hours at its rate limit, and the source's oplog reaches back %.1f hours: changes made meanwhile would be lost. Raise the limit, or %s"
                            .formatted(seconds / 3600, oplog.get().window() / 3600, ENLARGE));
        }
    }

    /**
     * Called at each poll; reads the oplog every ten seconds. Returns whether the ledger's warning has changed. Throws
     * {@link ConnectException} when the oplog no longer reaches back to the copy's beginning.
     */
    boolean update() {
        if (unreadable || System.nanoTime() - updatedNs < PAUSE_NS) return false;
        updatedNs = System.nanoTime();
        String before = ledger.warning();
        read().ifPresent(oplog -> {
            if (oplog.first() > ledger.start().seconds()) {
                throw new ConnectException(
                        "TWP-HISTORY-LOST: the copy began at %s and the source's oplog now begins at %s: changes made in between cannot be read any more, and a restart does not bring them back. First %s; then `towpath resnapshot PIPELINE` copies everything again"
                                .formatted(ledger.start(), new ClusterTime(oplog.first(), 0), ENLARGE));
            }
            double left = oplog.left(ledger.start());
            metrics.oplogLeft((long) left);
            warn(left);
        });
        return !ledger.warning().equals(before);
    }

    private void warn(double left) {
        double seconds = (System.nanoTime() - beganNs) / 1e9;
        double rate = (copiedBytes() - beganBytes) / seconds;
        long all =
                ledger.rows().planned().mapToLong(copy -> copy.plan().bytes()).sum();
        double needed = rate == 0 ? 0 : (all - copiedBytes()) / rate;
        boolean isLate = seconds > TOO_EARLY_S && needed > NEAR * left;
        if (isLate && !warned) {
            String message =
                    "the copy needs about %d more minutes, and the source's oplog holds the changes made meanwhile for about %d: %s"
                            .formatted(Math.round(needed / 60), Math.round(left / 60), ENLARGE);
            LOGGER.warn(message);
            ledger.warn(message);
        } else if (!isLate) {
            ledger.warn("");
        }
        warned = isLate;
    }

    private long copiedBytes() {
        return ledger.rows()
                .planned()
                .flatMap(copy -> copy.ranges().stream())
                .mapToLong(RangeCopy::bytes)
                .sum();
    }

    private Optional<Oplog> read() {
        try {
            return Optional.of(Oplog.read(source));
        } catch (MongoException error) {
            unreadable = !ReadFault.isTransient(error);
            if (unreadable)
                LOGGER.warn("cannot read how long the source's oplog keeps changes: {}", error.getMessage());
            return Optional.empty();
        }
    }
}
