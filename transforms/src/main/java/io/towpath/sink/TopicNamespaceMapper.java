package io.towpath.sink;

/**
 * The name that pipelines deployed before carry.
 *
 * @deprecated use {@link io.towpath.sink.plain.TopicNamespaceMapper}
 */
@Deprecated
public final class TopicNamespaceMapper extends io.towpath.sink.plain.TopicNamespaceMapper {}
