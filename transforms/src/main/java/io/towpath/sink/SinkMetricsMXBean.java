package io.towpath.sink;

/** What a sink task has done since it started, over JMX as {@code io.towpath:type=sink,pipeline=…,task=…}. */
public interface SinkMetricsMXBean {
    /** Records whose offsets are committed. */
    long getRecords();

    /** Bytes of their keys and values. */
    long getBytes();

    /** Transactions committed. */
    long getBatches();

    /** Inserts, updates and deletes: what is left of the records after folding. */
    long getWrites();

    /** How much folding saves; 0 when there were no writes. */
    double getRecordsPerWrite();

    /** Bytes of documents and updates in the writes. */
    long getBytesOut();

    long getWaves();

    long getInserts();

    long getUpdates();

    long getDeletes();

    /** Updates and deletes that found no document: the destination refused it before, or it never existed. */
    long getWithoutDocument();

    /** Records that became dead letters. */
    long getRefused();

    /** Transactions that were retried after a transient error. */
    long getRetries();

    /** When the last retry was, ms since the epoch; 0 when there was none. */
    long getLastRetryAt();

    String getLastRetryReason();

    /** How long the last batch took, from its handover to its commit. */
    long getBatchMs();

    /** How long the slowest batch took. */
    long getLongestBatchMs();

    /** The mean over all batches. */
    double getMeanBatchMs();
}
