package io.towpath.transform;

/**
 * The name that pipelines deployed before carry.
 *
 * @deprecated use {@link io.towpath.debezium.DebeziumToRecord}
 */
@Deprecated
public final class DebeziumToRecord extends io.towpath.debezium.DebeziumToRecord {}
