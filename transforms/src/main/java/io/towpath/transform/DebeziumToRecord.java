package io.towpath.transform;

/** @deprecated the name in pipelines that earlier versions deployed; use {@link io.towpath.debezium.DebeziumToRecord} */
@Deprecated
public final class DebeziumToRecord extends io.towpath.debezium.DebeziumToRecord {}
