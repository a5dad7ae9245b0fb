package io.towpath.source.progress;

import io.towpath.connector.MetricsBean;
import io.towpath.connector.RetryCounts;
import io.towpath.net.RetryCause;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counts of one task since its start, as {@code io.towpath:type=source,connector=…,task=…,pipeline=…,prefix=…}. */
public final class SourceMetrics implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SourceMetrics.class);

    private final AtomicLong rows = new AtomicLong();
    private final AtomicLong rowBytes = new AtomicLong();
    private final AtomicLong events = new AtomicLong();
    private final AtomicLong dropped = new AtomicLong();
    private final AtomicLong reread = new AtomicLong();
    private final AtomicLong requestsSkipped = new AtomicLong();
    private final AtomicLong oversized = new AtomicLong();
    private final RetryCounts retries = new RetryCounts();
    private final AtomicLong splices = new AtomicLong();
    private final AtomicLong spliceBytesSaved = new AtomicLong();
    private volatile long spliceCacheBytes;
    private volatile long spliceCacheDropped;
    private volatile String lastRetry = "";
    private final AtomicLong schemaChanges = new AtomicLong();
    private volatile String schemaError = "";
    private volatile String waitsFor = "";
    private volatile long oplogLeft = -1;
    private volatile long captureBehind = -1;
    private final MetricsBean bean = new MetricsBean()
            .add("Rows", "Rows of the copy", rows::get)
            .add("RowBytes", "Bytes of the copy's rows", rowBytes::get)
            .add("Events", "Records of changes, from the stream", events::get)
            .add("DroppedEvents", "Events that a copied row already held", dropped::get)
            .add("ReadAgain", "Documents re-read on request, including those that were gone", reread::get)
            .add(
                    "RequestsSkipped",
                    "Re-read requests of which nothing, or not every document, can be answered",
                    requestsSkipped::get)
            .add("Retries", "Reads that were retried after a transient error", retries::total)
            .add("LastRetry", "The last such error; empty if there was none", () -> lastRetry)
            .add("WaitsFor", "What the copy waits for in other tasks; empty: nothing", () -> waitsFor)
            .add(
                    "OplogSecondsLeft",
                    "How long the oplog still holds what is captured next; -1: unknown",
                    () -> oplogLeft)
            .add(
                    "CaptureSecondsBehind",
                    "How far capture was behind at the last check; -1: none yet",
                    () -> captureBehind)
            .add("Oversized", "Documents read in place of events, or made dead letters", oversized::get)
            .add("SchemaChanges", "Schema changes that were emitted", schemaChanges::get)
            .add(
                    "SchemaError",
                    "Why a schema change is not in the log as it should be; empty: nothing",
                    () -> schemaError)
            .add("Splices", "Arrays of which only the changes were emitted, as splices", splices::get)
            .add(
                    "SpliceBytesSaved",
                    "By how much splices made records smaller, before compression",
                    spliceBytesSaved::get)
            .add("SpliceCacheBytes", "Memory of the arrays that are remembered for splices", () -> spliceCacheBytes)
            .add("SpliceCacheDropped", "Arrays that were not remembered, for lack of memory", () -> spliceCacheDropped);

    public SourceMetrics(String connector, String pipeline, String prefix, CopyShare share) {
        retries.addTo(bean);
        try {
            bean.register("source", connector, share.task(), "pipeline", pipeline, "prefix", prefix);
        } catch (JMException error) {
            LOGGER.warn("the metrics of {} cannot be seen over JMX", connector, error);
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

    public void requestSkipped() {
        requestsSkipped.incrementAndGet();
    }

    public void retried(RetryCause cause, String reason) {
        retries.add(cause);
        lastRetry = reason;
    }

    public void waitsFor(String what) {
        waitsFor = what;
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

    public void schemaChanged(long count) {
        schemaChanges.addAndGet(count);
    }

    public void schemaError(String what) {
        schemaError = what;
    }

    public void spliced(long arrays, long saved) {
        splices.addAndGet(arrays);
        spliceBytesSaved.addAndGet(saved);
    }

    public void spliceCache(long bytes, long dropped) {
        spliceCacheBytes = bytes;
        spliceCacheDropped = dropped;
    }

    @Override
    public void close() {
        bean.close();
    }
}
