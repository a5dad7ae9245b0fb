package io.towpath.source.progress;

/**
 * Where a task records how far it is.
 *
 * @param name of the pipeline, which its topics begin with
 */
public record Progress(String name, Partitions partitions, Ledger ledger, SourceMetrics metrics) {}
