package io.towpath.source.progress;

import io.towpath.source.rules.Rules;

/**
 * Where a task records how far it is.
 *
 * @param name of the pipeline, which its topics begin with
 * @param rules what of documents may leave the source
 */
public record Progress(String name, Partitions partitions, Ledger ledger, SourceMetrics metrics, Rules rules) {}
