package io.towpath.source.copy;

import com.mongodb.MongoException;
import io.towpath.debezium.Oplog;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RangeCopy;
import io.towpath.source.progress.RangePlan;
import io.towpath.source.progress.SourceMetrics;
import java.time.Duration;
import java.util.Optional;
import java.util.function.Function;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches whether the source's oplog reaches back far enough: the stream begins where the initial copy began. Rejects a copy that cannot
 * end within the oplog's window, warns of one that may not, and stops one that did not. Warns when capture lags so far that the oplog may
 * soon drop what it has not read.
 */
public final class OplogWatch {
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

    public OplogWatch(Progress progress, SnapshotReads reads) {
        this.source = reads.source();
        this.ledger = progress.ledger();
        this.settings = reads.settings();
        this.metrics = progress.metrics();
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
     * Called at each poll of the copy. Returns whether the ledger's warning has changed. Throws {@link ConnectException} when the oplog no
     * longer reaches back to the copy's beginning.
     */
    boolean updateCopy() {
        return update(oplog -> {
            if (oplog.first() > ledger.smallestTime().seconds()) {
                throw new ConnectException(
                        "TWP-HISTORY-LOST: the copy began at %s and the source's oplog now begins at %s: changes made in between cannot be read any more, and a restart does not bring them back. First %s; then `towpath resnapshot PIPELINE` copies everything again"
                                .formatted(ledger.smallestTime(), new ClusterTime(oplog.first(), 0), ENLARGE));
            }
            double left = oplog.left(ledger.smallestTime());
            metrics.oplogLeft((long) left);
            return copyWarning(left);
        });
    }

    /** Called at each poll of the stream. Returns whether the ledger's warning has changed. */
    public boolean updateCapture(ClusterTime position) {
        return update(oplog -> {
            metrics.oplogLeft((long) oplog.left(position));
            metrics.captureBehind(oplog.last() - position.seconds());
            return oplog.isNear(position) ? captureWarning(oplog, position) : "";
        });
    }

    /** Reads the oplog every ten seconds. Returns whether the ledger's warning has changed. */
    private boolean update(Function<Oplog, String> warning) {
        if (unreadable || System.nanoTime() - updatedNs < PAUSE_NS) return false;
        updatedNs = System.nanoTime();
        String before = ledger.warning();
        read().map(warning).ifPresent(ledger::warn);
        return !ledger.warning().equals(before);
    }

    private String copyWarning(double left) {
        double seconds = (System.nanoTime() - beganNs) / 1e9;
        double rate = (copiedBytes() - beganBytes) / seconds;
        long all =
                ledger.rows().planned().mapToLong(copy -> copy.plan().bytes()).sum();
        double needed = rate == 0 ? 0 : (all - copiedBytes()) / rate;
        boolean isLate = seconds > TOO_EARLY_S && needed > NEAR * left;
        boolean isNew = isLate && !warned;
        warned = isLate;
        if (!isNew) return isLate ? ledger.warning() : "";
        return logged(
                "the copy needs about %d more minutes, and the source's oplog holds the changes made meanwhile for about %d: %s"
                        .formatted(Math.round(needed / 60), Math.round(left / 60), ENLARGE));
    }

    private static String captureWarning(Oplog oplog, ClusterTime position) {
        return logged(
                "capture is %s behind, and the source's oplog reaches back %s: changes that the oplog drops before they are captured are lost, and then `towpath resnapshot` has to re-read everything. Enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source"
                        .formatted(minutes(oplog.last() - position.seconds()), minutes(oplog.window())));
    }

    private static String minutes(double seconds) {
        return seconds < 120 ? "%.0f s".formatted(seconds) : "%.0f minutes".formatted(seconds / 60);
    }

    private static String logged(String message) {
        LOGGER.warn(message);
        return message;
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
            unreadable = !ReadFault.isTransient(error) && !ServerError.CappedPositionLost.is(error);
            if (unreadable)
                LOGGER.warn("cannot read how long the source's oplog keeps changes: {}", error.getMessage());
            return Optional.empty();
        }
    }
}
