package io.towpath.debezium;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import io.debezium.config.Configuration;
import io.debezium.connector.mongodb.MongoDbConnectorConfig;
import io.debezium.connector.mongodb.connection.DefaultMongoDbAuthProvider;
import io.towpath.net.PemFiles;
import io.towpath.net.SilentServers;
import javax.net.ssl.SSLContext;
import org.bson.codecs.configuration.CodecRegistries;

/**
 * Debezium's hook {@code mongodb.authentication.class}: authenticates as Debezium does, with PEM files where they are named, and
 * makes every document keep the bytes it has on the wire. An unresponsive server is given up ({@link SilentServers}).
 */
public final class RawDocuments extends DefaultMongoDbAuthProvider {
    /** Null where no PEM file is named. */
    private SSLContext tls;

    private ConnectionString uri;

    @Override
    public void init(Configuration config) {
        CursorPipeline.require(config.getString(CursorPipeline.SETTING));
        tls = PemFiles.of(config.asMap()).context().orElse(null);
        uri = new MongoDbConnectorConfig(config).getConnectionString();
        super.init(config);
    }

    @Override
    public MongoClientSettings.Builder addAuthConfig(MongoClientSettings.Builder settings) {
        if (tls != null) settings.applyToSslSettings(ssl -> ssl.enabled(true).context(tls));
        SilentServers.watch(settings, uri, "source");
        return super.addAuthConfig(settings)
                .codecRegistry(CodecRegistries.fromRegistries(
                        CodecRegistries.fromCodecs(new RawDocument.Codec()),
                        MongoClientSettings.getDefaultCodecRegistry()));
    }
}
