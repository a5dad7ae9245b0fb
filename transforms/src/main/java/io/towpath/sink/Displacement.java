package io.towpath.sink;

import com.mongodb.MongoException;
import io.towpath.sink.Offsets.Drift;
import io.towpath.sink.Offsets.Fenced;
import java.util.Collection;
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

    /** Throws {@link RetriableException} when another task owns a partition, and {@link ConnectException} when it still does much later. */
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

    /** Connect revokes the partition when it polls Kafka again. If it does not, two connectors write as one pipeline. */
    private RuntimeException displaced(Fenced fenced) {
        String message = "another task has taken over %s, so this one writes nothing more of it: "
                .formatted(fenced.getMessage());
        long now = System.nanoTime();
        if (fencedSince < 0) fencedSince = now;
        if (now - fencedSince > settings.retryTimeout().toNanos()) {
            return new ConnectException("TWP-SHARED-POSITION: " + message
                    + "%s '%s' is used by two connectors".formatted(SinkSettings.PIPELINE, settings.pipeline()));
        }
        context.timeout(PAUSE_MS);
        return new RetriableException(message + "it was cut off from Kafka for too long");
    }
}
