package io.towpath.sink;

import io.towpath.connector.MetricsBean;
import io.towpath.connector.RetryCounts;
import io.towpath.net.RetryCause;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.management.JMException;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Counts what a sink task has done since it started, as {@code io.towpath:type=sink,connector=…,task=…,pipeline=…}. Only the task's thread writes; any
 * thread may read.
 */
final class SinkMetrics implements AutoCloseable {
    private volatile WriteCounts totals = new WriteCounts();
    private volatile long records;
    private volatile long bytes;
    private volatile long batches;
    private volatile long waves;
    private volatile long refused;
    private volatile long spliceMisses;
    private final RetryCounts retries = new RetryCounts();
    private final TransactionTimes times = new TransactionTimes();
    private volatile long schemaChangesWaiting;
    private volatile long schemaChangesRefused;
    private volatile long schemaChangesMade;
    private volatile long lastRetryAt;
    private volatile String lastRetryReason = "";
    private volatile long batchMs;
    private volatile long longestBatchMs;
    private volatile long totalBatchMs;
    private final MetricsBean bean = new MetricsBean()
            .add("Records", "Records whose offsets are committed", () -> records)
            .add("Bytes", "Bytes of their keys and values", () -> bytes)
            .add("Batches", "Transactions committed", () -> batches)
            .add(
                    "Writes",
                    "Inserts, updates and deletes: what is left of the records after folding",
                    () -> totals.writes())
            .add("RecordsPerWrite", "How much folding saves; 0 without writes", () -> ratio(records, totals.writes()))
            .add("BytesOut", "Bytes of documents and updates in the writes", () -> totals.bytes())
            .add("Waves", "Waves of writes", () -> waves)
            .add("Inserts", "Inserts", () -> totals.inserts())
            .add("Updates", "Updates", () -> totals.updates())
            .add("Deletes", "Deletes", () -> totals.deletes())
            .add(
                    "WithoutDocument",
                    "Updates and deletes that found no document: someone removed it, the destination refused it before, or it never existed",
                    () -> totals.withoutDocument())
            .add("Splices", "Splices of arrays, in the updates", () -> totals.splices())
            .add(
                    "SpliceMisses",
                    "Records that became dead letters as they splice an array that is not as it was at the source",
                    () -> spliceMisses)
            .add("Refused", "Records that became dead letters", () -> refused)
            .add(
                    "SchemaChangesWaiting",
                    "Schema changes at which partitions of this task wait: they are being made, wait for other partitions or a decision",
                    () -> schemaChangesWaiting)
            .add(
                    "SchemaChangesRefused",
                    "Schema changes that the destination refuses, at which partitions of this task wait",
                    () -> schemaChangesRefused)
            .add("SchemaChangesDone", "Schema changes that this task has made", () -> schemaChangesMade)
            .add("Retries", "Transactions that were retried after a transient error", retries::total)
            .add("LastRetryAt", "When the last retry was, ms since the epoch; 0 if there was none", () -> lastRetryAt)
            .add("LastRetryReason", "The error before the last retry", () -> lastRetryReason)
            .add("BatchMs", "How long the last batch took, from its handover to its commit", () -> batchMs)
            .add("LongestBatchMs", "How long the slowest batch took", () -> longestBatchMs)
            .add("MeanBatchMs", "The mean over all batches", () -> ratio(totalBatchMs, batches));

    SinkMetrics(String connector, String pipeline, int task) {
        times.addTo(retries.addTo(bean));
        try {
            bean.register("sink", connector, task, "pipeline", pipeline);
        } catch (JMException error) {
            throw new ConnectException(
                    "cannot register the metrics of task %d of %s".formatted(task, connector), error);
        }
    }

    void applied(List<SinkRecord> applied, int newWaves, int newlyRefused, WriteCounts counts, long ns) {
        bytes += Records.bytes(applied);
        records += applied.size();
        waves += newWaves;
        refused += newlyRefused;
        totals = totals.plus(counts);
        batches++;
        times.add(ns);
    }

    void retried(RuntimeException error) {
        lastRetryReason = Verdict.message(error);
        lastRetryAt = System.currentTimeMillis();
        retries.add(error instanceof Unanswered ? RetryCause.KAFKA : RetryCause.of(error));
    }

    void schemaChanges(int waiting, int refused, long made) {
        schemaChangesWaiting = waiting;
        schemaChangesRefused = refused;
        schemaChangesMade = made;
    }

    void spliceMissed() {
        spliceMisses++;
    }

    void took(long ms) {
        batchMs = ms;
        longestBatchMs = Math.max(longestBatchMs, ms);
        totalBatchMs += ms;
    }

    long lastRetryAt() {
        return lastRetryAt;
    }

    String lastRetryReason() {
        return lastRetryReason;
    }

    /** What adds up over the tasks of a pipeline, as the destination stores it. */
    Map<String, Long> counters() {
        Map<String, Long> counters = new LinkedHashMap<>();
        counters.put("batches", batches);
        counters.put("records", records);
        counters.put("writes", totals.writes());
        counters.put("waves", waves);
        counters.put("inserts", totals.inserts());
        counters.put("updates", totals.updates());
        counters.put("deletes", totals.deletes());
        counters.put("withoutDocument", totals.withoutDocument());
        counters.put("bytes", bytes);
        counters.put("bytesOut", totals.bytes());
        counters.put("batchMs", totalBatchMs);
        counters.put("refused", refused);
        counters.put("retries", retries.total());
        retries.forEach((cause, count) -> counters.put("retriesBy." + cause.label(), count));
        times.addTo(counters);
        return counters;
    }

    private static double ratio(long part, long whole) {
        return whole == 0 ? 0 : (double) part / whole;
    }

    @Override
    public void close() {
        bean.close();
    }

    /** Writes by class, the bytes of documents and updates in them, those that found no document, and the arrays that they splice. */
    record WriteCounts(long inserts, long updates, long deletes, long bytes, long withoutDocument, long splices) {
        WriteCounts() {
            this(0, 0, 0, 0, 0, 0);
        }

        long writes() {
            return inserts + updates + deletes;
        }

        /** @param documents that the bulk inserted, found or deleted */
        WriteCounts plus(Waves.Bulk bulk, int documents) {
            long[] kinds = new long[Write.Kind.values().length];
            long expected = 0;
            long size = 0;
            long splices = 0;
            for (Write write : bulk.writes()) {
                kinds[write.kind().ordinal()]++;
                if (!write.mayMiss()) expected++;
                size += write.bytes();
                splices += write.lengths().size();
            }
            long without = Math.max(0, expected - documents);
            return plus(new WriteCounts(
                    kinds[Write.Kind.INSERT.ordinal()],
                    kinds[Write.Kind.CHANGE.ordinal()],
                    kinds[Write.Kind.DELETE.ordinal()],
                    size,
                    without,
                    splices));
        }

        WriteCounts plus(WriteCounts more) {
            return new WriteCounts(
                    inserts + more.inserts,
                    updates + more.updates,
                    deletes + more.deletes,
                    bytes + more.bytes,
                    withoutDocument + more.withoutDocument,
                    splices + more.splices);
        }
    }
}
