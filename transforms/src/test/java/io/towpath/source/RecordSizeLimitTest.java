package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Chunks;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.SourceMetrics;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsResult;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonBinary;
import org.bson.BsonDocument;
import org.bson.BsonInt64;
import org.bson.BsonString;
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
        byte[] data = new byte[160 << 10];
        Random random = new Random(1);
        if (content.equals("noise")) random.nextBytes(data);
        if (content.equals("digits")) for (int i = 0; i < data.length; i++) data[i] = (byte) ('0' + random.nextInt(10));
        byte[] value = document(data);
        SourceSettings settings = settings(sent, 1 << 20);
        byte[] key = CanonicalKey.of(BsonBytes.of(BsonDocument.parse("{_id: 1}")));
        SourceRecord record = new SourceRecord(Map.of(), Map.of(), TOPIC, 0, null, key, null, value);
        try (SourceMetrics metrics = new SourceMetrics("size", "move", "move", new CopyShare(0, 1));
                LogTopics topics = new LogTopics(settings, kafka -> topicOf(108 << 10, stored))) {
            List<SourceRecord> records = applied(new RecordSizeLimit(settings, metrics, topics), record);
            assertEquals(isTaken ? List.of(record) : List.of(), records.subList(0, isTaken ? 1 : 0));
            assertEquals(isTaken ? 1 : 3, records.size(), "two chunks, and the record that names them");
            assertEquals(
                    Set.of(TOPIC), records.stream().map(SourceRecord::topic).collect(Collectors.toSet()));
        }
    }

    /** As large as a document can be, to topics of one megabyte. */
    @Test
    void theChunksOfALargeDocumentFitIntoTheTopicAndAreTheDocument() throws InterruptedException {
        byte[] noise = new byte[16 << 20];
        new Random(1).nextBytes(noise);
        byte[] value = document(noise);
        byte[] key = CanonicalKey.of(value);
        SourceSettings settings = settings("none", 17 << 20);
        try (SourceMetrics metrics = new SourceMetrics("size", "move", "move", new CopyShare(0, 1));
                LogTopics topics = new LogTopics(settings, kafka -> topicOf(1 << 20, "producer"))) {
            RecordSizeLimit limit = new RecordSizeLimit(settings, metrics, topics);
            List<SourceRecord> records =
                    applied(limit, new SourceRecord(Map.of(), Map.of("at", 7), TOPIC, null, null, key, null, value));
            List<byte[]> parts = new ArrayList<>();
            for (SourceRecord record : records) {
                assertTrue(((byte[]) record.key()).length + ((byte[]) record.value()).length <= (1 << 20) - (8 << 10));
                assertEquals(Map.of("at", 7), record.sourceOffset());
                parts.add((byte[]) record.value());
            }
            Chunks chunks = Chunks.decode(parts.remove(parts.size() - 1));
            assertTrue(chunks.count() < 18, chunks.count() + " chunks");
            assertArrayEquals(value, chunks.join(parts));
        }
    }

    @Test
    void aDocumentWhoseIdIsTooLargeIsADeadLetter() throws InterruptedException {
        byte[] key = CanonicalKey.of(BsonBytes.of(new BsonDocument("_id", new BsonString("x".repeat(2 << 20)))));
        SourceSettings settings = settings("none", 17 << 20);
        try (SourceMetrics metrics = new SourceMetrics("size", "move", "move", new CopyShare(0, 1));
                LogTopics topics = new LogTopics(settings, kafka -> topicOf(1 << 20, "producer"))) {
            RecordSizeLimit limit = new RecordSizeLimit(settings, metrics, topics);
            for (byte[] value : new byte[][] {key, null}) {
                List<SourceRecord> records =
                        applied(limit, new SourceRecord(Map.of(), Map.of(), TOPIC, null, null, key, null, value));
                assertEquals(1, records.size());
                assertEquals("move.dead-letters", records.get(0).topic());
            }
        }
    }

    /** The sink is not MongoSink, which alone knows chunks. */
    @Test
    void withoutATopicOfDeadLettersThereAreNoChunks() {
        byte[] value = document(new byte[2 << 20]);
        SourceSettings settings = SourceSettings.of(Map.of(
                "towpath.name",
                "move",
                "towpath.requests.topic",
                "move.requests",
                "towpath.requests.bootstrap.servers",
                "unused:9092"));
        try (SourceMetrics metrics = new SourceMetrics("size", "move", "move", new CopyShare(0, 1));
                LogTopics topics = new LogTopics(settings, kafka -> topicOf(1 << 20, "producer"))) {
            RecordSizeLimit limit = new RecordSizeLimit(settings, metrics, topics);
            SourceRecord record =
                    new SourceRecord(Map.of(), Map.of(), TOPIC, null, null, CanonicalKey.of(value), null, value);
            String message = assertThrows(ConnectException.class, () -> applied(limit, record))
                    .getMessage();
            assertTrue(message.contains("its record 2,097,"), message);
        }
    }

    /** What is emitted for a record. */
    private static List<SourceRecord> applied(RecordSizeLimit limit, SourceRecord record) throws InterruptedException {
        List<SourceRecord> emitted = new ArrayList<>();
        boolean isWritten = limit.add(record, emitted);
        assertEquals(isWritten, emitted.get(0).topic().equals(record.topic()));
        return emitted;
    }

    private static byte[] document(byte[] data) {
        return BsonBytes.of(new BsonDocument("_id", new BsonInt64(1)).append("d", new BsonBinary(data)));
    }

    private static SourceSettings settings(String compression, int largestRequest) {
        return SourceSettings.of(Map.of(
                "towpath.name",
                "move",
                "towpath.requests.topic",
                "move.requests",
                "towpath.requests.bootstrap.servers",
                "unused:9092",
                "towpath.dead.letters.topic",
                "move.dead-letters",
                "producer.override.compression.type",
                compression,
                "producer.override.max.request.size",
                Integer.toString(largestRequest)));
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
