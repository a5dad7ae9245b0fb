package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.util.ConfigHelper;
import com.mongodb.kafka.connect.util.ConnectionValidator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigException;
import org.bson.BsonDocument;
import org.bson.BsonInt32;

/** Checks the destination as mongo-kafka's validation does, whose own client does not support PEM files. */
final class DestinationCheck {
    private static final List<String> ACTIONS = List.of("insert", "update", "remove");

    private static final int SILENCE_MS = 10_000;

    private DestinationCheck() {}

    /** Adds to the URI's messages why these settings cannot connect. */
    static void check(Map<String, String> settings, Config config) {
        if (config.configValues().stream()
                .anyMatch(value -> !value.errorMessages().isEmpty())) return;
        MongoSinkConfig sinkConfig = new MongoSinkConfig(settings);
        try (MongoClient client = Destination.connect(sinkConfig, SILENCE_MS)) {
            client.getDatabase("admin").runCommand(new BsonDocument("hello", new BsonInt32(1)));
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
                    .ifPresent(uri -> uri.addErrorMessage("Unable to connect to the server: " + Reason.of(error)));
        }
    }
}
