package io.towpath.source;

import com.mongodb.MongoException;
import io.towpath.record.ClusterTime;
import java.time.Duration;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether the source's oplog reaches back far enough: the stream begins where the first copy began. A copy that cannot be done within
 * the oplog's window is refused, one that comes near to it is warned of, one that has outlived it is stopped.
 */
final class OplogWatch {
    private static final Logger LOGGER = LoggerFactory.getLogger(OplogWatch.class);
    private static final long PAUSE_NS = Duration.ofSeconds(10).toNanos();
    /** No rate can be told before. */
    private static final int TOO_EARLY_S = 60;
    /** A copy that takes this share of what is left of the window is warned of. */
    private static final double NEAR = 0.8;

    private static final String ENLARGE =
            "enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source";

    private final SourceCluster source;
    private final Ledger ledger;
    private final SourceSettings settings;
    private final SourceMetrics metrics;
    private final long beganNs = System.nanoTime();
    private final long beganBytes;
    private long lookedNs = System.nanoTime() - PAUSE_NS;
    private boolean blind;
    private boolean warned;

    OplogWatch(SourceCluster source, Ledger ledger, SourceSettings settings, SourceMetrics metrics) {
        this.source = source;
        this.ledger = ledger;
        this.settings = settings;
        this.metrics = metrics;
        this.beganBytes = copiedBytes();
    }

    /** Throws {@link ConnectException} when the rate limit alone makes a copy that has not begun longer than the oplog's window. */
    void refuseHopeless() {
        boolean isLimited = settings.bytesPerSecond() > 0 || settings.documentsPerSecond() > 0;
        if (!isLimited || ledger.planned().findAny().isPresent()) return;
        Optional<Oplog> oplog = read();
        if (oplog.isEmpty()) return;
        double seconds = 0;
        for (String namespace : ledger.copies().keySet()) {
            RangePlan size = RangeCutter.plan(source.collection(namespace), Long.MAX_VALUE);
            seconds += Math.max(
                    settings.bytesPerSecond() == 0 ? 0 : (double) size.bytes() / settings.bytesPerSecond(),
                    settings.documentsPerSecond() == 0 ? 0 : (double) size.documents() / settings.documentsPerSecond());
        }
        if (seconds > oplog.get().window()) {
            throw new ConnectException(
                    "the first copy would take %.1f hours at its rate limit, and the source's oplog reaches back %.1f hours: the changes made meanwhile would be lost. Raise the limit, or %s"
                            .formatted(seconds / 3600, oplog.get().window() / 3600, ENLARGE));
        }
    }

    /**
     * To be called often; looks every ten seconds. Returns whether the ledger's warning is another one now. Throws {@link ConnectException} when the oplog no longer reaches to the copy's beginning.
     */
    boolean look() {
        if (blind || System.nanoTime() - lookedNs < PAUSE_NS) return false;
        lookedNs = System.nanoTime();
        String before = ledger.warning();
        read().ifPresent(oplog -> {
            if (oplog.first() > ledger.start().seconds()) {
                throw new ConnectException(
                        "the copy began at %s and the source's oplog now begins at %s: changes made since cannot be read any more, and a restart brings nothing back. First %s; then `towpath resnapshot PIPELINE` copies anew"
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
        long all = ledger.planned().mapToLong(copy -> copy.plan().bytes()).sum();
        double needed = rate == 0 ? 0 : (all - copiedBytes()) / rate;
        boolean isLate = seconds > TOO_EARLY_S && needed > NEAR * left;
        if (isLate && !warned) {
            String words =
                    "the copy needs about %d more minutes, and the source's oplog holds the changes made meanwhile for about %d: %s"
                            .formatted(Math.round(needed / 60), Math.round(left / 60), ENLARGE);
            LOGGER.warn(words);
            ledger.warn(words);
        } else if (!isLate) {
            ledger.warn("");
        }
        warned = isLate;
    }

    private long copiedBytes() {
        return ledger.planned()
                .flatMap(copy -> copy.ranges().stream())
                .mapToLong(RangeCopy::bytes)
                .sum();
    }

    private Optional<Oplog> read() {
        try {
            return Optional.of(Oplog.read(source));
        } catch (MongoException error) {
            blind = !ReadFault.passes(error);
            if (blind) LOGGER.warn("how long the source's oplog keeps changes cannot be seen: {}", error.getMessage());
            return Optional.empty();
        }
    }
}
