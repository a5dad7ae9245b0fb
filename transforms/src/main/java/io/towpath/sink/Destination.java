package io.towpath.sink;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.util.ServerApiConfig;
import com.mongodb.kafka.connect.util.SslConfigs;
import io.towpath.net.PemFiles;
import io.towpath.net.SilentServers;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;

/** Connects to the destination as mongo-kafka's settings say. */
final class Destination {
    /** Where Towpath keeps its own state. */
    static final String DATABASE = "towpath";

    static final String NEEDS_REPLICA_SET =
            "the destination is a single mongod, which has no transactions: make it a replica set, or "
                    + "deploy the pipeline with mode = \"plain\"";

    private Destination() {}

    /** @param silenceMs how long a server may be silent, if the URI does not set it */
    static MongoClient connect(MongoSinkConfig config, int silenceMs) {
        ConnectionString uri = config.getConnectionString();
        MongoClientSettings.Builder settings = MongoClientSettings.builder()
                .applyConnectionString(uri)
                .applyToSslSettings(ssl -> SslConfigs.setupSsl(ssl, config));
        PemFiles.of(config.getOriginals())
                .context()
                .ifPresent(tls ->
                        settings.applyToSslSettings(ssl -> ssl.enabled(true).context(tls)));
        if (uri.getSocketTimeout() == null)
            settings.applyToSocketSettings(socket -> socket.readTimeout(silenceMs, TimeUnit.MILLISECONDS));
        if (config.getCustomCredentialProvider() != null)
            settings.credential(config.getCustomCredentialProvider().getCustomCredential(config.getOriginals()));
        SilentServers.watch(settings, uri, "destination");
        ServerApiConfig.setServerApi(settings, config);
        return MongoClients.create(settings.build());
    }

    /** Throws {@link ConnectException} when the destination has no transactions. */
    static void requireTransactions(MongoClient client) {
        BsonDocument hello =
                client.getDatabase("admin").runCommand(new BsonDocument("hello", new BsonInt32(1)), BsonDocument.class);
        if (!hello.containsKey("setName") && !hello.containsKey("msg")) throw new ConnectException(NEEDS_REPLICA_SET);
    }
}
