package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RecordSizeLimitTest {
    private static final byte[] KEY = new byte[20];
    private static final byte[] VALUE = new byte[1 << 20];

    @Test
    void withoutCompressionARecordIsAsLargeAsItIs() {
        assertEquals(KEY.length + VALUE.length, RecordSizeLimit.packed("none", KEY, VALUE));
    }

    @ParameterizedTest
    @ValueSource(strings = {"gzip", "lz4", "snappy", "zstd"})
    void eachCompressionIsTried(String compression) {
        int packed = RecordSizeLimit.packed(compression, KEY, VALUE);
        assertTrue(packed > 0 && packed < VALUE.length / 10, compression + ": " + packed);
    }

    @Test
    void aTopicMayCompressAgain() {
        assertEquals(Optional.empty(), RecordSizeLimit.ofTopic("producer"));
        assertEquals(Optional.of("none"), RecordSizeLimit.ofTopic("uncompressed"));
        assertEquals(Optional.of("gzip"), RecordSizeLimit.ofTopic("gzip"));
    }

    @Test
    void theProducersCompressionIsTheConnectorsAndNoneByDefault() {
        Map<String, String> settings = new HashMap<>(Map.of("towpath.name", "move"));
        assertEquals("none", SourceSettings.of(settings).compression());
        settings.put("producer.override.compression.type", "zstd");
        assertEquals("zstd", SourceSettings.of(settings).compression());
    }
}
