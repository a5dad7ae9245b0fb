package io.towpath.source;

/** @deprecated the name that pipelines deployed before carry; use {@link io.towpath.debezium.RawDocuments} */
@Deprecated
public final class RawDocuments extends io.towpath.debezium.RawDocuments {}
