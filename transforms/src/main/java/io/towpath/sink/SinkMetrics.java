package io.towpath.sink;

import java.lang.management.ManagementFactory;
import java.util.List;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.MalformedObjectNameException;
import javax.management.ObjectName;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;

/** Counts what a sink task does. Only the task's thread writes; any thread may read. */
final class SinkMetrics implements SinkMetricsMXBean, AutoCloseable {
    private final ObjectName name;
    private volatile WriteCounts totals = new WriteCounts();
    private volatile long records;
    private volatile long bytes;
    private volatile long batches;
    private volatile long waves;
    private volatile long refused;
    private volatile long retries;
    private volatile long lastRetryAt;
    private volatile String lastRetryReason = "";
    private volatile long batchMs;
    private volatile long longestBatchMs;
    private volatile long totalBatchMs;

    SinkMetrics(String pipeline, int task) {
        try {
            name = new ObjectName("io.towpath:type=sink,pipeline=%s,task=%d".formatted(pipeline, task));
        } catch (MalformedObjectNameException error) {
            throw new ConnectException(
                    "%s '%s' must be letters, digits, _ and - only".formatted(SinkSettings.PIPELINE, pipeline), error);
        }
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            if (server.isRegistered(name)) server.unregisterMBean(name); // of a task that never stopped
            server.registerMBean(this, name);
        } catch (JMException error) {
            throw new ConnectException("cannot register the metrics " + name, error);
        }
    }

    void applied(List<SinkRecord> applied, int newWaves, int newlyRefused, WriteCounts counts) {
        bytes += Records.bytes(applied);
        records += applied.size();
        waves += newWaves;
        refused += newlyRefused;
        totals = totals.plus(counts);
        batches++;
    }

    void retried(String reason) {
        lastRetryReason = reason;
        lastRetryAt = System.currentTimeMillis();
        retries++;
    }

    void took(long ms) {
        batchMs = ms;
        longestBatchMs = Math.max(longestBatchMs, ms);
        totalBatchMs += ms;
    }

    @Override
    public long getRecords() {
        return records;
    }

    @Override
    public long getBytes() {
        return bytes;
    }

    @Override
    public long getBatches() {
        return batches;
    }

    @Override
    public long getWrites() {
        WriteCounts now = totals;
        return now.inserts() + now.updates() + now.deletes();
    }

    @Override
    public double getRecordsPerWrite() {
        return ratio(records, getWrites());
    }

    @Override
    public long getBytesOut() {
        return totals.bytes();
    }

    @Override
    public long getWaves() {
        return waves;
    }

    @Override
    public long getInserts() {
        return totals.inserts();
    }

    @Override
    public long getUpdates() {
        return totals.updates();
    }

    @Override
    public long getDeletes() {
        return totals.deletes();
    }

    @Override
    public long getWithoutDocument() {
        return totals.withoutDocument();
    }

    @Override
    public long getRefused() {
        return refused;
    }

    @Override
    public long getRetries() {
        return retries;
    }

    @Override
    public long getLastRetryAt() {
        return lastRetryAt;
    }

    @Override
    public String getLastRetryReason() {
        return lastRetryReason;
    }

    @Override
    public long getBatchMs() {
        return batchMs;
    }

    @Override
    public long getLongestBatchMs() {
        return longestBatchMs;
    }

    @Override
    public double getMeanBatchMs() {
        return ratio(totalBatchMs, batches);
    }

    /** How long all batches took together. */
    long totalBatchMs() {
        return totalBatchMs;
    }

    private static double ratio(long part, long whole) {
        return whole == 0 ? 0 : (double) part / whole;
    }

    @Override
    public void close() {
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
        } catch (JMException error) {
            // a newer task of the same number has replaced it
        }
    }
}
