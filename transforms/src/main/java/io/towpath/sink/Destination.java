package io.towpath.sink;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.util.ConfigHelper;
import com.mongodb.kafka.connect.util.ConnectionValidator;
import com.mongodb.kafka.connect.util.ServerApiConfig;
import com.mongodb.kafka.connect.util.SslConfigs;
import io.towpath.net.PemFiles;
import io.towpath.net.SilentServers;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.ConnectException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;

/** Connects to the destination as mongo-kafka's settings say, and checks it. */
final class Destination {
    /** Where Towpath keeps its own state. */
    static final String DATABASE = "towpath";

    static final String NEEDS_REPLICA_SET =
            "the destination is a single mongod, which has no transactions: make it a replica set, or "
                    + "deploy the pipeline with mode = \"plain\"";

    private static final List<String> ACTIONS = List.of("insert", "update", "remove");
    /** While the destination is checked. */
    private static final int SILENCE_MS = 10_000;

    private static final int NO_LIMIT = 0;

    private Destination() {}

    /** A client for commands that may take hours. */
    static MongoClient connectForLong(MongoSinkConfig config) {
        return connect(config, NO_LIMIT);
    }

    /** @param silenceMs how long a server may be silent, if the URI does not set it; or {@link #NO_LIMIT}, whatever the URI says */
    static MongoClient connect(MongoSinkConfig config, int silenceMs) {
        return MongoClients.create(settings(config, silenceMs));
    }

    static MongoClientSettings settings(MongoSinkConfig config, int silenceMs) {
        ConnectionString uri = config.getConnectionString();
        MongoClientSettings.Builder settings = MongoClientSettings.builder()
                .applyConnectionString(uri)
                .applyToSslSettings(ssl -> SslConfigs.setupSsl(ssl, config));
        PemFiles.of(config.getOriginals())
                .context()
                .ifPresent(tls ->
                        settings.applyToSslSettings(ssl -> ssl.enabled(true).context(tls)));
        if (silenceMs == NO_LIMIT) settings.timeout(NO_LIMIT, TimeUnit.MILLISECONDS);
        if (silenceMs == NO_LIMIT || uri.getSocketTimeout() == null)
            settings.applyToSocketSettings(socket -> socket.readTimeout(silenceMs, TimeUnit.MILLISECONDS));
        if (config.getCustomCredentialProvider() != null)
            settings.credential(config.getCustomCredentialProvider().getCustomCredential(config.getOriginals()));
        SilentServers.watch(settings, uri, "destination");
        return ServerApiConfig.setServerApi(settings, config).build();
    }

    /** Throws {@link ConnectException} when the destination has no transactions. */
    static void requireTransactions(MongoClient client) {
        BsonDocument hello = hello(client);
        if (!hello.containsKey("setName") && !hello.containsKey("msg")) throw new ConnectException(NEEDS_REPLICA_SET);
    }

    private static BsonDocument hello(MongoClient client) {
        return client.getDatabase("admin").runCommand(new BsonDocument("hello", new BsonInt32(1)), BsonDocument.class);
    }

    /**
     * Checks the destination as mongo-kafka's validation does, whose own client does not support PEM files: adds to the URI's messages why
     * these settings cannot connect.
     */
    static void check(Map<String, String> settings, Config config) {
        if (config.configValues().stream()
                .anyMatch(value -> !value.errorMessages().isEmpty())) return;
        MongoSinkConfig sinkConfig = new MongoSinkConfig(settings);
        try (MongoClient client = connect(sinkConfig, SILENCE_MS)) {
            hello(client);
            ConnectionValidator.validateUserHasActions(
                    client,
                    sinkConfig.getConnectionString().getCredential(),
                    ACTIONS,
                    settings.get(MongoSinkTopicConfig.DATABASE_CONFIG),
                    "",
                    MongoSinkConfig.CONNECTION_URI_CONFIG,
                    config);
        } catch (MongoException | ConfigException error) {
            ConfigHelper.getConfigByName(config, MongoSinkConfig.CONNECTION_URI_CONFIG)
                    .ifPresent(
                            uri -> uri.addErrorMessage("Unable to connect to the server: " + Verdict.message(error)));
        }
    }
}
