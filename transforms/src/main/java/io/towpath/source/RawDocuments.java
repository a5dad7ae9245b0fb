package io.towpath.source;

/**
 * The name that pipelines deployed before carry.
 *
 * @deprecated use {@link io.towpath.debezium.RawDocuments}
 */
@Deprecated
public final class RawDocuments extends io.towpath.debezium.RawDocuments {}
