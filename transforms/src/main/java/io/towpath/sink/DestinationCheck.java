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

/** Looks at the destination as mongo-kafka's validation does, which makes a client of its own that knows no PEM files. */
final class DestinationCheck {
    private static final List<String> ACTIONS = List.of("insert", "update", "remove");

    private DestinationCheck() {}

    /** Adds to the URI's messages what speaks against connecting with these settings. */
    static void check(Map<String, String> settings, Config found) {
        if (found.configValues().stream()
                .anyMatch(value -> !value.errorMessages().isEmpty())) return;
        MongoSinkConfig config = new MongoSinkConfig(settings);
        try (MongoClient client = Destination.connect(config)) {
            client.getDatabase("admin").runCommand(new BsonDocument("hello", new BsonInt32(1)));
            ConnectionValidator.validateUserHasActions(
                    client,
                    config.getConnectionString().getCredential(),
                    ACTIONS,
                    settings.get(MongoSinkTopicConfig.DATABASE_CONFIG),
                    "",
                    MongoSinkConfig.CONNECTION_URI_CONFIG,
                    found);
        } catch (MongoException | ConfigException error) {
            ConfigHelper.getConfigByName(found, MongoSinkConfig.CONNECTION_URI_CONFIG)
                    .ifPresent(uri -> uri.addErrorMessage("Unable to connect to the server: " + Reason.of(error)));
        }
    }
}
