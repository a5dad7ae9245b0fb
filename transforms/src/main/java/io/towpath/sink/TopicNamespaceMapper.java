package io.towpath.sink;

/** @deprecated the name that pipelines deployed before carry; use {@link io.towpath.sink.plain.TopicNamespaceMapper} */
@Deprecated
public final class TopicNamespaceMapper extends io.towpath.sink.plain.TopicNamespaceMapper {}
