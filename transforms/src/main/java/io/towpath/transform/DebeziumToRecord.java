package io.towpath.transform;

/** @deprecated the name that pipelines deployed before carry; use {@link io.towpath.debezium.DebeziumToRecord} */
@Deprecated
public final class DebeziumToRecord extends io.towpath.debezium.DebeziumToRecord {}
