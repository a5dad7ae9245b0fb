package io.towpath.source.progress;

/** What MongoSource counts, since the task's start. */
public interface SourceMXBean {
    /** Rows of the copy. */
    long getRows();

    /** Bytes of the copy's rows. */
    long getRowBytes();

    /** Records of changes, from the stream. */
    long getEvents();

    /** Events that a copied row already held. */
    long getDroppedEvents();

    /** Documents that were re-read on request, including those that were gone. */
    long getReadAgain();

    /** Reads that were retried after a transient error. */
    long getRetries();

    /** The last such error; empty if there was none. */
    String getLastRetry();

    /** Estimated seconds for which the oplog still holds what is captured next; -1 when unknown. */
    long getOplogSecondsLeft();

    /** Seconds by which capture was behind at the last look at the oplog; -1 before the first. */
    long getCaptureSecondsBehind();

    /** Documents that were read in place of an event, or became dead letters, because that was too large. */
    long getOversized();
}
