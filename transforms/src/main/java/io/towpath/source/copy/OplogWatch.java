package io.towpath.source.copy;

import com.mongodb.MongoException;
import io.towpath.debezium.Oplog;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import io.towpath.source.progress.Ledger;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches how far back the source's oplog reaches. A round of the copy must end long before the oplog drops what the stream reads next.
 * Warns when capture lags so far that the oplog may soon drop what it has not read.
 */
public final class OplogWatch {
    private static final Logger LOGGER = LoggerFactory.getLogger(OplogWatch.class);
    /** How often the oplog is read; where it reaches back a short time only, more often. */
    private static final double LONGEST_PAUSE_S = 10;

    private static final double SHORTEST_PAUSE_S = 0.5;
    private static final int PAUSES_A_WINDOW = 64;
    /** A round lasts this part of what the oplog reaches back. */
    private static final int ROUNDS_A_WINDOW = 8;
    /** The shortest round, as the stream also needs time. */
    private static final double SHORTEST_ROUND_S = 1;
    /** A round where the user may not read the oplog. */
    private static final double BLIND_ROUND_S = 300;

    private static final String ENLARGE =
            "enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source";

    private final SourceCluster source;
    private final Ledger ledger;
    private final CopySettings settings;
    private final SourceMetrics metrics;
    private final long beganNs = System.nanoTime();
    private long dueNs = System.nanoTime();
    private boolean unreadable;
    /** As it was last read; null before. */
    private Oplog oplog;

    /** Bytes that were written to the oplog before the round. */
    private long writtenBefore = -1;

    public OplogWatch(Progress progress, SnapshotReads reads) {
        this.source = reads.source();
        this.ledger = progress.ledger();
        this.settings = reads.settings();
        this.metrics = progress.metrics();
    }

    /**
     * Called at each poll of the copy. Returns whether the ledger's warning has changed. Throws {@link ConnectException} when the oplog no
     * longer reaches back to the round's beginning.
     */
    boolean updateCopy() {
        boolean isChanged = update(ledger.start());
        if (oplog != null && oplog.first() > ledger.start().seconds()) {
            throw new ConnectException(
                    "TWP-HISTORY-LOST: the copy has captured everything up to %s, and the source's oplog now begins at %s: changes made in between cannot be read any more, and a restart does not bring them back. First %s; then `towpath resnapshot PIPELINE` copies everything again"
                            .formatted(ledger.start(), new ClusterTime(oplog.first(), 0), ENLARGE));
        }
        return isChanged;
    }

    /** Whether the stream should run now, as the round has lasted long enough; by the source's clock also before a restart. */
    boolean isRoundOver() {
        double seconds = (System.nanoTime() - beganNs) / 1e9;
        if (settings.roundMs() > 0) return 1_000 * seconds >= settings.roundMs();
        if (seconds < SHORTEST_ROUND_S) return false;
        if (oplog == null) return seconds >= BLIND_ROUND_S;
        double longest = oplog.window() / ROUNDS_A_WINDOW;
        if (Math.max(seconds, oplog.last() - ledger.start().seconds()) >= longest) return true;
        // the window may have become shorter since
        return seconds >= oplog.kept() / ROUNDS_A_WINDOW
                && oplog.written() - writtenBefore >= oplog.size() / ROUNDS_A_WINDOW;
    }

    /**
     * Called at each poll of the stream. Returns whether the ledger's warning has changed.
     *
     * @param position up to which everything is captured
     */
    public boolean update(ClusterTime position) {
        if (unreadable || System.nanoTime() - dueNs < 0) return false;
        read().ifPresent(current -> oplog = current);
        double pause = oplog == null ? LONGEST_PAUSE_S : oplog.window() / PAUSES_A_WINDOW;
        dueNs = System.nanoTime() + (long) (1e9 * Math.max(SHORTEST_PAUSE_S, Math.min(LONGEST_PAUSE_S, pause)));
        if (oplog == null) return false;
        if (writtenBefore < 0) writtenBefore = oplog.written();
        metrics.oplogLeft((long) oplog.left(position));
        metrics.captureBehind(oplog.last() - position.seconds());
        String before = ledger.warning();
        ledger.warn(oplog.isNear(position) ? warning(position) : "");
        return !ledger.warning().equals(before);
    }

    private String warning(ClusterTime position) {
        String message =
                "capture is %s behind, and the source's oplog reaches back %s: changes that the oplog drops before they are captured are lost, and then `towpath resnapshot` has to re-read everything. Enlarge the oplog (replSetResizeOplog, with minRetentionHours) on every member of the source"
                        .formatted(minutes(oplog.last() - position.seconds()), minutes(oplog.window()));
        LOGGER.warn(message);
        return message;
    }

    private static String minutes(double seconds) {
        return seconds < 120 ? "%.0f s".formatted(seconds) : "%.0f minutes".formatted(seconds / 60);
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
