package io.towpath.source;

/** What MongoSource counts, since the task's start. */
public interface SourceMXBean {
    /** Rows of the copy. */
    long getRows();

    /** Bytes of the copy's rows. */
    long getRowBytes();

    /** Records of changes, from the stream. */
    long getEvents();

    /** Events that a row held already. */
    long getDroppedEvents();

    /** Documents that were read again on request, those that were gone included. */
    long getReadAgain();

    /** Reads that failed for a passing reason and were tried again. */
    long getRetries();

    /** Why the last of them failed; empty if none did. */
    String getLastRetry();

    /** Seconds for which the oplog still holds what is captured next, as far as can be told; -1 when unknown. */
    long getOplogSecondsLeft();

    /** Seconds by which capture was behind when the oplog was looked at last; -1 before that. */
    long getCaptureSecondsBehind();

    /** Documents that were read in place of an event, or set aside, because that was too large. */
    long getOversized();
}
