package io.towpath.json;

import org.apache.kafka.common.serialization.Deserializer;

/**
 * Shows keys and values of the log as relaxed Extended JSON, for Kafka user interfaces: a document; an update as its {@code $set},
 * {@code $unset}, {@code $truncate} and {@code $splice}; a schema change as its document; a delete as null. What breaks the record contract
 * becomes {@code {"foreign": reason, …}}, never an exception, which would stop the reader. It has no settings.
 */
public final class JsonDeserializer implements Deserializer<String> {
    @Override
    public String deserialize(String topic, byte[] bytes) {
        return LogJson.of(bytes);
    }
}
