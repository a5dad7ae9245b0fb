package io.towpath.source;

import com.mongodb.MongoException;
import io.towpath.record.ClusterTime;
import java.time.Duration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Whether capture that lags comes near the end of what the source's oplog holds. */
final class CaptureWatch {
    private static final Logger LOGGER = LoggerFactory.getLogger(CaptureWatch.class);
    private static final long PAUSE_NS = Duration.ofSeconds(10).toNanos();

    private final SourceCluster source;
    private final Ledger ledger;
    private final SourceMetrics metrics;
    private long lookedNs = System.nanoTime() - PAUSE_NS;
    private boolean blind;

    CaptureWatch(SourceCluster source, Ledger ledger, SourceMetrics metrics) {
        this.source = source;
        this.ledger = ledger;
        this.metrics = metrics;
    }

    /** To be called often; looks every ten seconds. Returns whether the ledger's warning is another one now. */
    boolean look(ClusterTime position) {
        if (blind || System.nanoTime() - lookedNs < PAUSE_NS) return false;
        lookedNs = System.nanoTime();
        String before = ledger.warning();
        try {
            Oplog oplog = Oplog.read(source);
            metrics.oplogLeft((long) oplog.left(position));
            metrics.captureBehind(oplog.last() - position.seconds());
            ledger.warn(oplog.isNear(position) ? words(oplog, position) : "");
        } catch (MongoException error) {
            blind = !ReadFault.passes(error);
            if (blind) LOGGER.warn("how long the source's oplog keeps changes cannot be seen: {}", error.getMessage());
            return false;
        }
        if (!ledger.warning().isEmpty()) LOGGER.warn(ledger.warning());
        return !ledger.warning().equals(before);
    }

    private static String words(Oplog oplog, ClusterTime position) {
        return "capture is %s behind, and the source's oplog reaches back %s: what is not captured by then is lost to it, and `towpath resnapshot` has to read everything again. Enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source"
                .formatted(minutes(oplog.last() - position.seconds()), minutes(oplog.window()));
    }

    private static String minutes(double seconds) {
        return seconds < 120 ? "%.0f s".formatted(seconds) : "%.0f minutes".formatted(seconds / 60);
    }
}
