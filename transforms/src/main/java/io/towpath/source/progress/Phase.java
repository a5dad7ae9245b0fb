package io.towpath.source.progress;

import java.util.List;
import org.apache.kafka.connect.source.SourceRecord;

/** A phase of the task: it copies, or it streams. */
public interface Phase extends AutoCloseable {
    /** Records of one transaction; null when there are none yet. */
    List<SourceRecord> poll() throws InterruptedException;

    /** Whether the next phase should begin. */
    default boolean isOver() {
        return false;
    }

    @Override
    void close();
}
