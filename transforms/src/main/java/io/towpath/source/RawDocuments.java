package io.towpath.source;

import com.mongodb.MongoClientSettings;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.connection.DefaultMongoDbAuthProvider;
import org.apache.kafka.common.config.ConfigException;
import org.bson.codecs.configuration.CodecRegistries;

/**
 * Debezium's hook {@code mongodb.authentication.class}: authenticates as Debezium does by itself, and makes every document keep the
 * bytes it has on the wire.
 */
public final class RawDocuments extends DefaultMongoDbAuthProvider {
    private static final String PIPELINE_KEY = "cursor.pipeline";

    @Override
    public void init(Configuration config) {
        String pipeline = config.getString(PIPELINE_KEY);
        if (!ChangeCarrier.isCarriedBy(pipeline)) {
            throw new ConfigException(
                    PIPELINE_KEY,
                    pipeline,
                    "updates and deletes would reach the transform with loss; set it to " + ChangeCarrier.PIPELINE);
        }
        super.init(config);
    }

    @Override
    public MongoClientSettings.Builder addAuthConfig(MongoClientSettings.Builder settings) {
        return super.addAuthConfig(settings)
                .codecRegistry(CodecRegistries.fromRegistries(
                        CodecRegistries.fromCodecs(new RawDocumentCodec()),
                        MongoClientSettings.getDefaultCodecRegistry()));
    }
}
