package io.towpath.sink;

import com.mongodb.bulk.BulkWriteResult;
import java.lang.management.ManagementFactory;
import java.util.Collection;
import java.util.List;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.MalformedObjectNameException;
import javax.management.ObjectName;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;

/** Counts what a sink task does. Only the task's thread writes; any may read. */
final class SinkMetrics implements SinkMetricsMXBean, AutoCloseable {
    private final ObjectName name;
    private volatile Counts totals = new Counts();
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

    /** Writes by class, and the bytes of documents and updates in them. */
    record Counts(long inserts, long updates, long deletes, long bytes, long withoutDocument) {
        Counts() {
            this(0, 0, 0, 0, 0);
        }

        Counts plus(Waves.Bulk bulk, BulkWriteResult result) {
            long[] kinds = new long[Write.Kind.values().length];
            bulk.writes().forEach(write -> kinds[write.kind().ordinal()]++);
            long expected =
                    bulk.writes().stream().filter(write -> !write.mayMiss()).count();
            int found = result.getInsertedCount()
                    + result.getMatchedCount()
                    + result.getUpserts().size()
                    + result.getDeletedCount();
            return new Counts(
                    inserts + kinds[0],
                    updates + kinds[1],
                    deletes + kinds[2],
                    bytes + bulk.writes().stream().mapToLong(Write::bytes).sum(),
                    withoutDocument + Math.max(0, expected - found));
        }

        Counts plus(Counts more) {
            return new Counts(
                    inserts + more.inserts,
                    updates + more.updates,
                    deletes + more.deletes,
                    bytes + more.bytes,
                    withoutDocument + more.withoutDocument);
        }
    }

    SinkMetrics(String pipeline, int task) {
        try {
            name = new ObjectName("io.towpath:type=sink,pipeline=%s,task=%d".formatted(pipeline, task));
        } catch (MalformedObjectNameException error) {
            throw new ConnectException(
                    "%s '%s' must be letters, digits, _ and - only".formatted(SinkSettings.PIPELINE, pipeline), error);
        }
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            if (server.isRegistered(name)) server.unregisterMBean(name); // of a task that never ended
            server.registerMBean(this, name);
        } catch (JMException error) {
            throw new ConnectException("cannot register the metrics " + name, error);
        }
    }

    void applied(List<SinkRecord> applied, int wavesOfIt, int refusedOfIt, Counts counts) {
        bytes += size(applied);
        records += applied.size();
        waves += wavesOfIt;
        refused += refusedOfIt;
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

    static long size(Collection<SinkRecord> records) {
        long bytes = 0;
        for (SinkRecord record : records) bytes += size(record);
        return bytes;
    }

    static long size(SinkRecord record) {
        return (record.key() instanceof byte[] key ? key.length : 0)
                + (record.value() instanceof byte[] value ? value.length : 0);
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
        Counts now = totals;
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
