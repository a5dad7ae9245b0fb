package io.towpath.source.stream;

import com.mongodb.MongoException;
import io.towpath.debezium.Oplog;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.SourceMetrics;
import java.time.Duration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Warns when capture lags so far that the source's oplog may soon drop what it has not read. */
final class CaptureWatch {
    private static final Logger LOGGER = LoggerFactory.getLogger(CaptureWatch.class);
    private static final long PAUSE_NS = Duration.ofSeconds(10).toNanos();

    private final SourceCluster source;
    private final Ledger ledger;
    private final SourceMetrics metrics;
    private long updatedNs = System.nanoTime() - PAUSE_NS;
    private boolean unreadable;

    CaptureWatch(SourceCluster source, Ledger ledger, SourceMetrics metrics) {
        this.source = source;
        this.ledger = ledger;
        this.metrics = metrics;
    }

    /** Called at each poll; reads the oplog every ten seconds. Returns whether the ledger's warning has changed. */
    boolean update(ClusterTime position) {
        if (unreadable || System.nanoTime() - updatedNs < PAUSE_NS) return false;
        updatedNs = System.nanoTime();
        String before = ledger.warning();
        try {
            Oplog oplog = Oplog.read(source);
            metrics.oplogLeft((long) oplog.left(position));
            metrics.captureBehind(oplog.last() - position.seconds());
            ledger.warn(oplog.isNear(position) ? message(oplog, position) : "");
        } catch (MongoException error) {
            unreadable = !ReadFault.isTransient(error);
            if (unreadable)
                LOGGER.warn("cannot read how long the source's oplog keeps changes: {}", error.getMessage());
            return false;
        }
        if (!ledger.warning().isEmpty()) LOGGER.warn(ledger.warning());
        return !ledger.warning().equals(before);
    }

    private static String message(Oplog oplog, ClusterTime position) {
        return "capture is %s behind, and the source's oplog reaches back %s: changes that the oplog drops before they are captured are lost, and then `towpath resnapshot` has to re-read everything. Enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source"
                .formatted(minutes(oplog.last() - position.seconds()), minutes(oplog.window()));
    }

    private static String minutes(double seconds) {
        return seconds < 120 ? "%.0f s".formatted(seconds) : "%.0f minutes".formatted(seconds / 60);
    }
}
