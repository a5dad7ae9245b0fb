package io.towpath.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class PemFilesTest {
    @Test
    void withoutFilesTheDriverIsLeftAlone() {
        PemFiles none = PemFiles.of(Map.of("connection.uri", "mongodb://a/"));
        assertTrue(none.isNone());
        assertEquals(Optional.empty(), none.context());
    }

    @Test
    void filesThatCannotBeUsedAreNamedWithoutThePassword(@TempDir Path folder) throws IOException {
        Path file = Files.writeString(folder.resolve("client.pem"), "nothing of the kind");
        PemFiles files = PemFiles.of(
                Map.of("towpath.tls.certificate", file.toString(), "towpath.tls.key.password", "swordfish"));
        String words = assertThrows(ConfigException.class, files::context).getMessage();
        assertTrue(words.contains(file.toString()) && words.contains("PKCS #8"), words);
        assertFalse(words.contains("swordfish"), words);
        assertFalse(files.toString().contains("swordfish"));
    }
}
