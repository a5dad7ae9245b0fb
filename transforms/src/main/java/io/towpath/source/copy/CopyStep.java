package io.towpath.source;

/** What a copying thread tells the task, in order. */
sealed interface CopyStep permits Page, CopyStep.Planned, CopyStep.Trouble, CopyStep.Failed {
    String namespace();

    /** Of the documents that it holds. */
    default long bytes() {
        return 0;
    }

    /** A collection has been cut into ranges; its rows follow. */
    record Planned(String namespace, RangePlan plan) implements CopyStep {}

    /** A read failed for a passing reason and is tried again. */
    record Trouble(String namespace, int range, String reason) implements CopyStep {}

    /** A read failed for good. */
    record Failed(String namespace, Throwable cause) implements CopyStep {}
}
