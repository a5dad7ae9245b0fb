package io.towpath.sink;

import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;

/** @deprecated the name in pipelines that earlier versions deployed; use {@link io.towpath.sink.plain.RecordHandler} */
@Deprecated
public final class RecordHandler extends io.towpath.sink.plain.RecordHandler {
    public RecordHandler(MongoSinkTopicConfig config) {
        super(config);
    }
}
