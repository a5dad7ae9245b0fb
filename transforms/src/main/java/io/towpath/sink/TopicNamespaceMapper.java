package io.towpath.sink;

/** @deprecated the name in pipelines that earlier versions deployed; use {@link io.towpath.sink.plain.TopicNamespaceMapper} */
@Deprecated
public final class TopicNamespaceMapper extends io.towpath.sink.plain.TopicNamespaceMapper {}
