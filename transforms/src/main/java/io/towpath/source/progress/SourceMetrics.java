package io.towpath.source;

import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counts of one task, as {@code io.towpath:type=source,pipeline=…,prefix=…}. */
final class SourceMetrics implements SourceMXBean, AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(SourceMetrics.class);

    private final AtomicLong rows = new AtomicLong();
    private final AtomicLong rowBytes = new AtomicLong();
    private final AtomicLong events = new AtomicLong();
    private final AtomicLong dropped = new AtomicLong();
    private final AtomicLong readAgain = new AtomicLong();
    private final AtomicLong oversized = new AtomicLong();
    private final AtomicLong retries = new AtomicLong();
    private volatile String lastRetry = "";
    private volatile long oplogLeft = -1;
    private volatile long captureBehind = -1;
    private final ObjectName name;

    SourceMetrics(String pipeline, String prefix) {
        this.name = register(pipeline, prefix);
    }

    private ObjectName register(String pipeline, String prefix) {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            ObjectName wanted = new ObjectName("io.towpath:type=source,pipeline=%s,prefix=%s"
                    .formatted(ObjectName.quote(pipeline), ObjectName.quote(prefix)));
            if (server.isRegistered(wanted)) server.unregisterMBean(wanted);
            server.registerMBean(this, wanted);
            return wanted;
        } catch (JMException error) {
            LOGGER.warn("the metrics of {} cannot be seen over JMX", prefix, error);
            return null;
        }
    }

    void copied(Page page) {
        rows.addAndGet(page.documents().size());
        rowBytes.addAndGet(page.bytes());
    }

    void streamed(long count) {
        events.addAndGet(count);
    }

    void dropped() {
        dropped.incrementAndGet();
    }

    void readAgain(long count) {
        readAgain.addAndGet(count);
    }

    void retried(String reason) {
        retries.incrementAndGet();
        lastRetry = reason;
    }

    void oplogLeft(long seconds) {
        oplogLeft = seconds;
    }

    void captureBehind(long seconds) {
        captureBehind = seconds;
    }

    void oversized() {
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
        return readAgain.get();
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
