package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCredential;
import com.mongodb.ServerApi;
import com.mongodb.ServerApiVersion;
import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.util.custom.credentials.CustomCredentialProvider;
import com.mongodb.kafka.connect.util.custom.credentials.CustomCredentialProviderConstants;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the driver gets of mongo-kafka's settings. */
class DestinationSettingsTest {
    private static final List<String> STORES = List.of("connection.ssl.truststore", "connection.ssl.keystore");

    private final Map<String, String> passedOn = new HashMap<>(Map.of(
            "connection.uri",
            "mongodb://elsewhere:7/?tls=false", // with TLS, SilentServers wraps the context that is looked for here
            "server.api.version",
            "1",
            "server.api.strict",
            "true",
            "server.api.deprecation.errors",
            "true",
            CustomCredentialProviderConstants.CUSTOM_AUTH_ENABLE_CONFIG,
            "true",
            CustomCredentialProviderConstants.CUSTOM_AUTH_PROVIDER_CLASS,
            Provider.class.getName()));

    @BeforeEach
    void createStores(@TempDir Path folder) throws Exception {
        for (String store : STORES) {
            Path file = folder.resolve(store);
            KeyStore empty = KeyStore.getInstance(KeyStore.getDefaultType());
            empty.load(null, null);
            try (OutputStream out = Files.newOutputStream(file)) {
                empty.store(out, store.toCharArray());
            }
            passedOn.put(store, file.toString());
            passedOn.put(store + "Password", store);
        }
    }

    @Test
    void theDriverGetsEverySettingThatIsPassedOn() {
        Set<String> known = new TreeSet<>(MongoSinkConfig.CONFIG.names());
        known.add(CustomCredentialProviderConstants.CUSTOM_AUTH_ENABLE_CONFIG);
        known.add(CustomCredentialProviderConstants.CUSTOM_AUTH_PROVIDER_CLASS);
        known.removeIf(name -> !name.matches("(connection|server\\.api|mongo\\.custom\\.auth)\\..*"));
        assertEquals(known, new TreeSet<>(passedOn.keySet()), "a new version of mongo-kafka has others");
        known.forEach(name -> assertEquals(
                Optional.of(""), MongoKafkaSettings.RULES.rule(name).map(rule -> rule.why()), name));

        MongoClientSettings settings = settings();

        assertEquals(
                "elsewhere:7", settings.getClusterSettings().getHosts().get(0).toString());
        assertEquals(
                ServerApi.builder()
                        .version(ServerApiVersion.V1)
                        .strict(true)
                        .deprecationErrors(true)
                        .build(),
                settings.getServerApi());
        assertEquals(Provider.CREDENTIAL, settings.getCredential());
        assertNotNull(settings.getSslSettings().getContext());
    }

    /** As mongo-kafka has it; so each store is read, with its own password. */
    @Test
    void whereAStoreCannotBeReadBothAreIgnored() {
        for (String store : STORES) {
            passedOn.put(store + "Password", "another");
            assertNull(settings().getSslSettings().getContext(), store);
            passedOn.put(store + "Password", store);
        }
    }

    private MongoClientSettings settings() {
        Map<String, String> settings = new HashMap<>(passedOn);
        settings.put("topics", "main.shop.orders");
        settings.put("database", "unused");
        settings.put("namespace.mapper", TopicNamespaceMapper.class.getName());
        settings.put("change.data.capture.handler", RecordHandler.class.getName());
        return Destination.settings(new MongoSinkConfig(settings), 1);
    }

    /** Named in a setting. */
    public static final class Provider implements CustomCredentialProvider {
        private static final MongoCredential CREDENTIAL =
                MongoCredential.createCredential("user", "admin", "secret".toCharArray());

        @Override
        public MongoCredential getCustomCredential(Map<?, ?> configuration) {
            return CREDENTIAL;
        }

        @Override
        public void validate(Map<?, ?> configuration) {
            // nothing to check
        }

        @Override
        public void init(Map<?, ?> configuration) {
            // nothing to prepare
        }
    }
}
