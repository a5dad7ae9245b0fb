package io.towpath.sink;

/** What a sink task has done since it started, over JMX as {@code io.towpath:type=sink,pipeline=…,task=…}. */
public interface SinkMetricsMXBean {
    /** Records whose offsets are committed. */
    long getRecords();

    /** Bytes of keys and values in those. */
    long getBytes();

    /** Transactions committed. */
    long getBatches();

    /** Inserts, updates and deletes: what the records come to when the changes of each document are folded. */
    long getWrites();

    /** What folding saves; 0 when there were no writes. */
    double getRecordsPerWrite();

    /** Bytes of documents and updates in the writes. */
    long getBytesOut();

    long getWaves();

    long getInserts();

    long getUpdates();

    long getDeletes();

    /** Updates and deletes that found no document: what they are about was refused before, or was never there. */
    long getWithoutDocument();

    /** Records set aside to the dead-letter topic. */
    long getRefused();

    /** Transactions that had to be tried again for a reason that passes. */
    long getRetries();

    /** When the last of them was, ms since the epoch; 0 when there was none. */
    long getLastRetryAt();

    String getLastRetryReason();

    /** How long the last batch took from being handed over to being committed. */
    long getBatchMs();

    /** The longest that one took. */
    long getLongestBatchMs();

    /** Milliseconds, of all batches. */
    double getMeanBatchMs();
}
