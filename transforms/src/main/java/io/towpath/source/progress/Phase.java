package io.towpath.source;

import java.util.List;
import org.apache.kafka.connect.source.SourceRecord;

/** What the task does now: it copies, or it streams. */
interface Stage extends AutoCloseable {
    /** Records of one transaction; null when there are none yet. */
    List<SourceRecord> poll() throws InterruptedException;

    /** Whether the next stage is to begin. */
    boolean isOver();

    @Override
    void close();
}
