package io.towpath.source;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.connection.SslSettings;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.MongoDbConnectorConfig;
import io.debezium.connector.mongodb.connection.DefaultMongoDbAuthProvider;
import io.towpath.tls.PemFiles;
import java.security.NoSuchAlgorithmException;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
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
        boolean isOurs = uri.getProxyHost() == null && !Boolean.FALSE.equals(uri.getSslEnabled());
        if (isOurs) watch(settings);
        return super.addAuthConfig(settings)
                .codecRegistry(CodecRegistries.fromRegistries(
                        CodecRegistries.fromCodecs(new RawDocumentCodec()),
                        MongoClientSettings.getDefaultCodecRegistry()));
    }

    private void watch(MongoClientSettings.Builder settings) {
        Sockets sockets = new Sockets();
        settings.applyToSslSettings(ssl -> {
            SslSettings told = ssl.build();
            boolean hasTls = uri.getSslEnabled() == null ? told.isEnabled() : uri.getSslEnabled();
            ssl.enabled(true).context(sockets.context(hasTls ? Optional.of(tls(told)) : Optional.empty()));
        });
        settings.applyToClusterSettings(cluster -> cluster.addClusterListener(new SilentServers(sockets)));
    }

    private static SSLContext tls(SslSettings told) {
        try {
            return told.getContext() == null ? SSLContext.getDefault() : told.getContext();
        } catch (NoSuchAlgorithmException error) {
            throw new ConnectException("this JVM has no TLS: " + error.getMessage(), error);
        }
    }
}
