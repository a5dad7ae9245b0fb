package io.towpath.net;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Cipher;
import javax.crypto.EncryptedPrivateKeyInfo;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;
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
    public static final String PREFIX = "towpath.tls.";

    private static final String CA = PREFIX + "ca";
    private static final String CERTIFICATE = PREFIX + "certificate";
    private static final String PASSWORD = PREFIX + "key.password";
    private static final Pattern ENCRYPTED =
            Pattern.compile("-+BEGIN ENCRYPTED PRIVATE KEY-+([\\sA-Za-z0-9+/=]+)-+END ENCRYPTED PRIVATE KEY-+");
    private static final Pattern KEY = Pattern.compile("-+BEGIN [A-Z ]*PRIVATE KEY-+[^-]+-+END [A-Z ]*PRIVATE KEY-+");

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
                settings.put(
                        SslConfigs.SSL_KEYSTORE_CERTIFICATE_CHAIN_CONFIG,
                        KEY.matcher(text).replaceAll(""));
                settings.put(SslConfigs.SSL_KEYSTORE_KEY_CONFIG, key(text, password));
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

    /**
     * The decrypted private key in a file's text, as PEM; empty where there is none. Decrypts keys of current OpenSSL (PBES2), which Kafka's
     * reader does not on Java 17.
     */
    private static String key(String text, String password) throws IOException, GeneralSecurityException {
        Matcher encrypted = ENCRYPTED.matcher(text);
        if (encrypted.find()) return decrypted(encrypted.group(1), password);
        Matcher plain = KEY.matcher(text);
        return plain.find() ? plain.group() : "";
    }

    private static String decrypted(String base64, String password) throws IOException, GeneralSecurityException {
        EncryptedPrivateKeyInfo key =
                new EncryptedPrivateKeyInfo(Base64.getMimeDecoder().decode(base64));
        boolean isNamed = key.getAlgName().startsWith("PBEWith");
        String algorithm =
                isNamed ? key.getAlgName() : key.getAlgParameters().toString(); // as PBES2's parameters print
        Cipher cipher = Cipher.getInstance(algorithm);
        PBEKeySpec passphrase = new PBEKeySpec(password.toCharArray());
        cipher.init(
                Cipher.DECRYPT_MODE,
                SecretKeyFactory.getInstance(algorithm).generateSecret(passphrase),
                key.getAlgParameters());
        String body =
                Base64.getMimeEncoder().encodeToString(key.getKeySpec(cipher).getEncoded());
        return "-----BEGIN PRIVATE KEY-----\n" + body + "\n-----END PRIVATE KEY-----\n";
    }

    private static String reason(Throwable error) {
        return error.getCause() == null ? error.toString() : error.getMessage() + ": " + reason(error.getCause());
    }

    @Override
    public String toString() {
        return String.join(" and ", certificate.isEmpty() ? new String[] {ca} : new String[] {ca, certificate});
    }
}
