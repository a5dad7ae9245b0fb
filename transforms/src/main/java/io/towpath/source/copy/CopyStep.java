package io.towpath.source.copy;

import io.towpath.source.progress.Page;
import io.towpath.source.progress.RangePlan;

/** What a copying thread reports to the task, in order. */
sealed interface CopyStep {
    String namespace();

    /** Of the documents in it. */
    default long bytes() {
        return 0;
    }

    /** A collection has been divided into ranges; its rows follow. */
    record Planned(String namespace, RangePlan plan) implements CopyStep {}

    /** Rows of a range. */
    record Copied(Page page) implements CopyStep {
        @Override
        public String namespace() {
            return page.namespace();
        }

        @Override
        public long bytes() {
            return page.bytes();
        }
    }

    /** A read failed with a transient error and is retried. */
    record Retried(String namespace, int range, String reason) implements CopyStep {}

    /** A read failed permanently. */
    record Failed(String namespace, Throwable cause) implements CopyStep {}
}
