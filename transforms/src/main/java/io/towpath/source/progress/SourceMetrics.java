package io.towpath.source.progress;

import io.towpath.connector.MetricsBean;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counts of one task since its start, as {@code io.towpath:type=source,pipeline=…,prefix=…}. */
public final class SourceMetrics implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SourceMetrics.class);

    private final AtomicLong rows = new AtomicLong();
    private final AtomicLong rowBytes = new AtomicLong();
    private final AtomicLong events = new AtomicLong();
    private final AtomicLong dropped = new AtomicLong();
    private final AtomicLong reread = new AtomicLong();
    private final AtomicLong oversized = new AtomicLong();
    private final AtomicLong retries = new AtomicLong();
    private volatile String lastRetry = "";
    private volatile long oplogLeft = -1;
    private volatile long captureBehind = -1;
    private final MetricsBean bean = new MetricsBean()
            .add("Rows", "Rows of the copy", rows::get)
            .add("RowBytes", "Bytes of the copy's rows", rowBytes::get)
            .add("Events", "Records of changes, from the stream", events::get)
            .add("DroppedEvents", "Events that a copied row already held", dropped::get)
            .add("ReadAgain", "Documents re-read on request, including those that were gone", reread::get)
            .add("Retries", "Reads that were retried after a transient error", retries::get)
            .add("LastRetry", "The last such error; empty if there was none", () -> lastRetry)
            .add(
                    "OplogSecondsLeft",
                    "How long the oplog still holds what is captured next; -1: unknown",
                    () -> oplogLeft)
            .add(
                    "CaptureSecondsBehind",
                    "How far capture was behind at the last look; -1: none yet",
                    () -> captureBehind)
            .add("Oversized", "Documents read in place of too large events, or made dead letters", oversized::get);

    public SourceMetrics(String pipeline, String prefix) {
        try {
            bean.register("io.towpath:type=source,pipeline=%s,prefix=%s"
                    .formatted(ObjectName.quote(pipeline), ObjectName.quote(prefix)));
        } catch (JMException error) {
            LOGGER.warn("the metrics of {} cannot be seen over JMX", prefix, error);
        }
    }

    public void copied(Page page) {
        rows.addAndGet(page.documents().size());
        rowBytes.addAndGet(page.bytes());
    }

    public void streamed(long count) {
        events.addAndGet(count);
    }

    public void dropped() {
        dropped.incrementAndGet();
    }

    public void reread(long count) {
        reread.addAndGet(count);
    }

    public void retried(String reason) {
        retries.incrementAndGet();
        lastRetry = reason;
    }

    public void oplogLeft(long seconds) {
        oplogLeft = seconds;
    }

    public void captureBehind(long seconds) {
        captureBehind = seconds;
    }

    public void oversized() {
        oversized.incrementAndGet();
    }

    @Override
    public void close() {
        bean.close();
    }
}
