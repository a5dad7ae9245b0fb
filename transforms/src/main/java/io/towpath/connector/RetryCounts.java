package io.towpath.connector;

import io.towpath.net.RetryCause;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.ObjLongConsumer;

/** How often a task has retried, by cause. Any thread may count and read. */
public final class RetryCounts {
    private final AtomicLongArray counts = new AtomicLongArray(RetryCause.values().length);

    public void add(RetryCause cause) {
        counts.incrementAndGet(cause.ordinal());
    }

    public long total() {
        long total = 0;
        for (int cause = 0; cause < counts.length(); cause++) total += counts.get(cause);
        return total;
    }

    public void forEach(ObjLongConsumer<RetryCause> consumer) {
        for (RetryCause cause : RetryCause.values()) consumer.accept(cause, counts.get(cause.ordinal()));
    }

    /** As one attribute for each cause. */
    public MetricsBean addTo(MetricsBean bean) {
        for (RetryCause cause : RetryCause.values())
            bean.add(
                    "Retries_" + cause.label(),
                    "Those of the retries with this cause",
                    () -> counts.get(cause.ordinal()));
        return bean;
    }
}
