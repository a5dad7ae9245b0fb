package io.towpath.net;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * The PEM files that a MongoDB URI names: tlsCAFile and tlsCertificateKeyFile. Java's driver supports key stores only, so these are read
 * as Kafka reads its own.
 *
 * @param ca certificates of the authorities that may sign the server's certificate; empty: those of the JVM
 * @param certificate the client's certificate and its key in one file; empty: none
 * @param password of the key; empty when it is not encrypted
 */
public record PemFiles(String ca, String certificate, String password) {
    /** The prefix of these settings. */
    public static final String PREFIX = "towpath.tls.";

    private static final String CA = PREFIX + "ca";
    private static final String CERTIFICATE = PREFIX + "certificate";
    private static final String PASSWORD = PREFIX + "key.password";

    /** Adds these settings to a definition. */
    public static ConfigDef define(ConfigDef definition) {
        return definition
                .define(CA, Type.STRING, "", Importance.MEDIUM, "PEM file of the CA; empty: those of the JVM.")
                .define(
                        CERTIFICATE,
                        Type.STRING,
                        "",
                        Importance.MEDIUM,
                        "PEM file with the client's certificate and its key; empty: none.")
                .define(PASSWORD, Type.PASSWORD, "", Importance.MEDIUM, "The password of that key.");
    }

    public static PemFiles of(Map<String, String> settings) {
        return new PemFiles(
                settings.getOrDefault(CA, ""),
                settings.getOrDefault(CERTIFICATE, ""),
                settings.getOrDefault(PASSWORD, ""));
    }

    public boolean isNone() {
        return ca.isEmpty() && certificate.isEmpty();
    }

    /** Nothing when no file is named. Throws {@link ConfigException} for files that cannot be used. */
    public Optional<SSLContext> context() {
        if (isNone()) return Optional.empty();
        Map<String, String> settings = new HashMap<>();
        if (!ca.isEmpty()) {
            settings.put(SslConfigs.SSL_TRUSTSTORE_TYPE_CONFIG, DefaultSslEngineFactory.PEM_TYPE);
            settings.put(SslConfigs.SSL_TRUSTSTORE_LOCATION_CONFIG, ca);
        }
        try (DefaultSslEngineFactory factory = new DefaultSslEngineFactory()) {
            if (!certificate.isEmpty()) {
                String text = Files.readString(Path.of(certificate));
                settings.put(SslConfigs.SSL_KEYSTORE_TYPE_CONFIG, DefaultSslEngineFactory.PEM_TYPE);
                settings.put(SslConfigs.SSL_KEYSTORE_CERTIFICATE_CHAIN_CONFIG, PemKey.certificates(text));
                settings.put(SslConfigs.SSL_KEYSTORE_KEY_CONFIG, PemKey.of(text, password));
            }
            factory.configure(new ConfigDef().withClientSslSupport().parse(settings));
            return Optional.of(factory.sslContext());
        } catch (KafkaException | IOException | GeneralSecurityException error) {
            throw new ConfigException(
                    ("cannot use the PEM files %s: %s; is the key's password right? (A key has to be PKCS #8: BEGIN PRIVATE KEY or "
                                    + "BEGIN ENCRYPTED PRIVATE KEY; openssl pkcs8 -topk8 makes it one.)")
                            .formatted(this, reason(error)));
        }
    }

    private static String reason(Throwable error) {
        return error.getCause() == null ? error.toString() : error.getMessage() + ": " + reason(error.getCause());
    }

    @Override
    public String toString() {
        return String.join(" and ", certificate.isEmpty() ? new String[] {ca} : new String[] {ca, certificate});
    }
}
