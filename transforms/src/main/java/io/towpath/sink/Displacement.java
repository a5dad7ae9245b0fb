package io.towpath.sink;

import com.mongodb.MongoException;
import io.towpath.sink.Offsets.Drift;
import io.towpath.sink.Offsets.Fenced;
import io.towpath.sink.Offsets.Owner;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkTaskContext;

/**
 * Finds out where the destination is after a transaction that did not succeed: a commit that seemed to fail may have succeeded, a failover
 * may have rolled one back, and another task may have taken the partitions over.
 */
final class Displacement {
    private static final long PAUSE_MS = 500;
    /** What a restart does not cure has a code. */
    private static final Map<Owner, String> CODES =
            Map.of(Owner.LATER, "TWP-SHARED-POSITION: ", Owner.EARLIER, "", Owner.NONE, "TWP-POSITION-LOST: ");

    private final SinkSettings settings;
    private final SinkTaskContext context;
    private final Offsets offsets;
    private final SinkMetrics metrics;
    private final Retry retry;
    private long fencedSince = -1;

    Displacement(SinkSettings settings, SinkTaskContext context, Offsets offsets, SinkMetrics metrics, Retry retry) {
        this.settings = settings;
        this.context = context;
        this.offsets = offsets;
        this.metrics = metrics;
        this.retry = retry;
    }

    /** Throws {@link RetriableException} when this task does not own a partition, and {@link ConnectException} when it still does not much later. */
    Collection<Drift> drifts(Set<TopicPartition> partitions) {
        while (true) {
            try {
                return offsets.drifts(partitions).values();
            } catch (Fenced fenced) {
                throw displaced(fenced);
            } catch (MongoException error) {
                if (Verdict.of(error) != Verdict.TRANSIENT) throw BatchWriter.hopeless(error);
                metrics.retried(error);
                retry.pause("read the offsets at the destination", error);
            }
        }
    }

    /** A transaction succeeded, or Connect revoked partitions: it was right that another task took them over. */
    void resolved() {
        fencedSince = -1;
    }

    /**
     * If a later task owns the partition, Connect revokes it when this one polls Kafka again. If it does not, two connectors write as one
     * pipeline. Otherwise someone has changed the destination: a task that starts again continues at an older position, but not without one.
     */
    private RuntimeException displaced(Fenced fenced) {
        long now = System.nanoTime();
        if (fencedSince < 0) fencedSince = now;
        boolean isLasting = now - fencedSince > settings.retryTimeout().toNanos();
        String partition = fenced.getMessage();
        String words =
                switch (fenced.owner()) {
                    case LATER -> "another task has taken over " + partition
                            + ", so this one writes nothing more of it: "
                            + (isLasting ? twoConnectors() : "it was cut off from Kafka for too long");
                    case EARLIER -> "the destination has an older position of " + partition
                            + " than this task's: it was"
                            + " restored to an earlier state, or emptied and used again; `towpath restart` continues there";
                    case NONE -> "the destination no longer has the position of " + partition
                            + ": it was emptied, or someone"
                            + " removed its database towpath; docs/how-to/rebuild.md says how to continue";
                };
        if (isLasting) return new ConnectException(CODES.get(fenced.owner()) + words);
        context.timeout(PAUSE_MS);
        return new RetriableException(words);
    }

    private String twoConnectors() {
        return "%s '%s' is used by two connectors".formatted(SinkSettings.PIPELINE, settings.pipeline());
    }
}
