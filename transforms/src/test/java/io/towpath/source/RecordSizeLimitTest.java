package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.SourceMetrics;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsResult;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RecordSizeLimitTest {
    private static final String TOPIC = "move.shop.orders";
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
        assertEquals(Optional.empty(), LogTopics.ofTopic("producer"));
        assertEquals(Optional.of("none"), LogTopics.ofTopic("uncompressed"));
        assertEquals(Optional.of("gzip"), LogTopics.ofTopic("gzip"));
    }

    /** Each value is larger than the topic takes, unless it is compressed as it will be. */
    @ParameterizedTest
    @CsvSource({
        "none, producer, zeros, false",
        "lz4, producer, zeros, true",
        "lz4, producer, digits, false",
        "zstd, producer, digits, true",
        "zstd, uncompressed, digits, false",
        "zstd, lz4, digits, false",
        "none, zstd, digits, false",
        "zstd, zstd, noise, false"
    })
    void whatATopicTakesIsMeasuredAsItIsSentAndAsItIsStored(String sent, String stored, String content, boolean isTaken)
            throws InterruptedException {
        byte[] value = new byte[160 << 10];
        Random random = new Random(1);
        if (content.equals("noise")) random.nextBytes(value);
        if (content.equals("digits"))
            for (int i = 0; i < value.length; i++) value[i] = (byte) ('0' + random.nextInt(10));
        SourceSettings settings = SourceSettings.of(Map.of(
                "towpath.name",
                "move",
                "towpath.requests.topic",
                "move.requests",
                "towpath.requests.bootstrap.servers",
                "unused:9092",
                "towpath.dead.letters.topic",
                "move.dead-letters",
                "producer.override.compression.type",
                sent));
        byte[] key = CanonicalKey.of(BsonBytes.of(BsonDocument.parse("{_id: 1}")));
        SourceRecord record = new SourceRecord(Map.of(), Map.of(), TOPIC, 0, null, key, null, value);
        try (SourceMetrics metrics = new SourceMetrics("size", "move", "move", new CopyShare(0, 1));
                LogTopics topics = new LogTopics(settings, kafka -> topicOf(108 << 10, stored))) {
            RecordSizeLimit limit = new RecordSizeLimit(settings, metrics, topics);
            assertEquals(
                    isTaken ? TOPIC : "move.dead-letters", limit.applyTo(record).topic());
        }
    }

    /** Kafka as it describes the topic's settings. */
    private static Admin topicOf(int bytes, String compression) {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        Config config = new Config(List.of(
                new ConfigEntry("max.message.bytes", Integer.toString(bytes)),
                new ConfigEntry("compression.type", compression)));
        DescribeConfigsResult result = new DescribeConfigsResult(Map.of(topic, KafkaFuture.completedFuture(config))) {};
        return (Admin) Proxy.newProxyInstance(
                Admin.class.getClassLoader(),
                new Class<?>[] {Admin.class},
                (proxy, method, arguments) -> method.getName().equals("describeConfigs") ? result : null);
    }

    @Test
    void theProducersCompressionIsTheConnectorsAndNoneByDefault() {
        Map<String, String> settings = new HashMap<>(Map.of("towpath.name", "move"));
        assertEquals("none", SourceSettings.of(settings).compression());
        settings.put("producer.override.compression.type", "zstd");
        assertEquals("zstd", SourceSettings.of(settings).compression());
    }
}
