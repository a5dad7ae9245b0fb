package io.towpath.source;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.MongoDbConnectorConfig;
import io.debezium.connector.mongodb.connection.DefaultMongoDbAuthProvider;
import io.towpath.silent.SilentServers;
import io.towpath.tls.PemFiles;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import org.apache.kafka.common.config.ConfigException;
import org.bson.codecs.configuration.CodecRegistries;

/**
 * Debezium's hook {@code mongodb.authentication.class}: authenticates as Debezium does by itself, with PEM files where they are named,
 * and makes every document keep the bytes it has on the wire. What waits for a server that sleeps is given up ({@link SilentServers}).
 */
public final class RawDocuments extends DefaultMongoDbAuthProvider {
    private static final String PIPELINE_KEY = "cursor.pipeline";

    private Optional<SSLContext> context = Optional.empty();
    private ConnectionString uri;

    @Override
    public void init(Configuration config) {
        String pipeline = config.getString(PIPELINE_KEY);
        if (!ChangeCarrier.isCarriedBy(pipeline)) {
            throw new ConfigException(
                    PIPELINE_KEY,
                    pipeline,
                    "updates and deletes would reach the transform with loss; set it to " + ChangeCarrier.PIPELINE);
        }
        context = PemFiles.of(config.asMap()).context();
        uri = new MongoDbConnectorConfig(config).getConnectionString();
        super.init(config);
    }

    @Override
    public MongoClientSettings.Builder addAuthConfig(MongoClientSettings.Builder settings) {
        context.ifPresent(
                ours -> settings.applyToSslSettings(ssl -> ssl.enabled(true).context(ours)));
        SilentServers.watch(settings, uri, "source");
        return super.addAuthConfig(settings)
                .codecRegistry(CodecRegistries.fromRegistries(
                        CodecRegistries.fromCodecs(new RawDocumentCodec()),
                        MongoClientSettings.getDefaultCodecRegistry()));
    }
}
