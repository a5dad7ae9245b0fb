package io.towpath.source.progress;

import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counts of one task, as {@code io.towpath:type=source,pipeline=…,prefix=…}. */
public final class SourceMetrics implements SourceMXBean, AutoCloseable {
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
    private final ObjectName name;

    public SourceMetrics(String pipeline, String prefix) {
        this.name = register(pipeline, prefix);
    }

    private ObjectName register(String pipeline, String prefix) {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            ObjectName mbean = new ObjectName("io.towpath:type=source,pipeline=%s,prefix=%s"
                    .formatted(ObjectName.quote(pipeline), ObjectName.quote(prefix)));
            if (server.isRegistered(mbean)) server.unregisterMBean(mbean);
            server.registerMBean(this, mbean);
            return mbean;
        } catch (JMException error) {
            LOGGER.warn("the metrics of {} cannot be seen over JMX", prefix, error);
            return null;
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
    public long getRows() {
        return rows.get();
    }

    @Override
    public long getRowBytes() {
        return rowBytes.get();
    }

    @Override
    public long getEvents() {
        return events.get();
    }

    @Override
    public long getDroppedEvents() {
        return dropped.get();
    }

    @Override
    public long getReadAgain() {
        return reread.get();
    }

    @Override
    public long getRetries() {
        return retries.get();
    }

    @Override
    public String getLastRetry() {
        return lastRetry;
    }

    @Override
    public long getOplogSecondsLeft() {
        return oplogLeft;
    }

    @Override
    public long getCaptureSecondsBehind() {
        return captureBehind;
    }

    @Override
    public long getOversized() {
        return oversized.get();
    }

    @Override
    public void close() {
        if (name == null) return;
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
        } catch (JMException error) {
            LOGGER.debug("{} was not registered any more", name, error);
        }
    }
}
