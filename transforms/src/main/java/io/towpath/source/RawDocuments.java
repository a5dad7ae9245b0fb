package io.towpath.source;

/** @deprecated the name in pipelines that earlier versions deployed; use {@link io.towpath.debezium.RawDocuments} */
@Deprecated
public final class RawDocuments extends io.towpath.debezium.RawDocuments {}
