package io.towpath.net;

import java.io.IOException;
import java.security.GeneralSecurityException;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Cipher;
import javax.crypto.EncryptedPrivateKeyInfo;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;

/** The private key in a PEM file. Decrypts keys of current OpenSSL (PBES2), which Kafka's reader does not on Java 17. */
final class PemKey {
    private static final Pattern ENCRYPTED =
            Pattern.compile("-+BEGIN ENCRYPTED PRIVATE KEY-+([\\sA-Za-z0-9+/=]+)-+END ENCRYPTED PRIVATE KEY-+");
    private static final Pattern KEY = Pattern.compile("-+BEGIN [A-Z ]*PRIVATE KEY-+[^-]+-+END [A-Z ]*PRIVATE KEY-+");

    private PemKey() {}

    /** The decrypted key in a file's text, as PEM; empty where there is none. */
    static String of(String text, String password) throws IOException, GeneralSecurityException {
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

    /** The text without its key: the certificates. */
    static String certificates(String text) {
        return KEY.matcher(text).replaceAll("");
    }
}
