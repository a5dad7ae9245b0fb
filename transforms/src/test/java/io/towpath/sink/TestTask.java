package io.towpath.sink;

import com.mongodb.client.MongoCollection;
import io.towpath.connector.TextHeaders;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.sink.plain.RecordHandler;
import io.towpath.sink.plain.TopicNamespaceMapper;
import io.towpath.support.Context;
import io.towpath.support.Definitions;
import io.towpath.support.Server;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** A real task of the sink on a real destination, with its own log: partitions of a collection's topic, one unless more are opened. */
final class TestTask implements AutoCloseable {
    static final String PIPELINE = "test";

    final Context context = new Context();
    final TowpathSinkTask task = new TowpathSinkTask(log -> new LogGuard(null, -1)); // there is no Kafka to ask
    final TopicPartition partition;
    /** The broker's time of the records to come; null for none. */
    Long appendedMs;

    TestTask(MongoCollection<RawBsonDocument> collection, Map<String, String> more) {
        partition =
                new TopicPartition(PIPELINE + "." + collection.getNamespace().getFullName(), 0);
        Map<String, String> settings = Definitions.filled("sink.json");
        settings.keySet().removeIf(key -> key.startsWith("towpath.") || key.startsWith("topics"));
        settings.put("connection.uri", Server.uri());
        settings.put("topics", partition.topic());
        settings.put("database", "unused");
        settings.put("namespace.mapper", TopicNamespaceMapper.class.getName());
        settings.put("change.data.capture.handler", RecordHandler.class.getName());
        settings.put("errors.deadletterqueue.topic.name", "test.dead-letters");
        settings.put(SinkSettings.PIPELINE, PIPELINE);
        settings.put(SinkSettings.RETRY_TIMEOUT, "20000");
        settings.put(SinkSettings.POLL_RECORDS, "100000"); // what a test puts is all that is there
        settings.putAll(more);
        task.initialize(context);
        task.start(settings);
    }

    /** A task that has its partition. */
    static TestTask opened(MongoCollection<RawBsonDocument> collection, String... more) {
        TestTask opened = started(collection, more);
        opened.task.open(List.of(opened.partition));
        return opened;
    }

    /** A task that has no partition yet. */
    static TestTask started(MongoCollection<RawBsonDocument> collection, String... more) {
        Map<String, String> settings = new HashMap<>();
        for (int i = 0; i < more.length; i += 2) settings.put(more[i], more[i + 1]);
        return new TestTask(collection, settings);
    }

    /** Of the same topic. */
    TopicPartition partition(int number) {
        return new TopicPartition(partition.topic(), number);
    }

    static TopicPartition partition(SinkRecord record) {
        return new TopicPartition(record.topic(), record.kafkaPartition());
    }

    long seek() {
        return context.seeks.get(partition);
    }

    /** Records from this offset on: a document, an update or {@code {_id: …, gone: true}}, after its op, as in {@code "c {_id: 1}"}. */
    List<SinkRecord> records(long from, String... changes) {
        List<SinkRecord> records = new ArrayList<>();
        for (String change : changes) {
            BsonDocument content = BsonDocument.parse(change.substring(2));
            BsonDocument id = new BsonDocument("_id", content.get("_id"));
            if (change.startsWith("u")) content.remove("_id");
            byte[] value = change.startsWith("d") ? null : BsonBytes.of(content);
            records.add(record(from + records.size(), change.substring(0, 1), BsonBytes.of(id), value));
        }
        return records;
    }

    /** The same update, whose document's row may follow. */
    static SinkRecord marked(SinkRecord update) {
        Headers headers = TextHeaders.withRowFollows(update.headers());
        return new SinkRecord(
                update.topic(),
                update.kafkaPartition(),
                update.keySchema(),
                update.key(),
                update.valueSchema(),
                update.value(),
                update.kafkaOffset(),
                update.timestamp(),
                update.timestampType(),
                headers);
    }

    /** The same records in another partition. */
    static List<SinkRecord> in(TopicPartition partition, List<SinkRecord> records) {
        return records.stream()
                .map(record -> record.newRecord(
                        partition.topic(),
                        partition.partition(),
                        record.keySchema(),
                        record.key(),
                        record.valueSchema(),
                        record.value(),
                        record.timestamp(),
                        record.headers()))
                .toList();
    }

    SinkRecord record(long offset, String operation, byte[] id, byte[] value) {
        ClusterTime time = new ClusterTime(1_700_000_000, (int) offset);
        Headers headers = TextHeaders.of(new RecordHeaders(operation, time, 1_700_000_000_000L));
        return new SinkRecord(
                partition.topic(),
                partition.partition(),
                Schema.OPTIONAL_BYTES_SCHEMA,
                CanonicalKey.of(id),
                Schema.OPTIONAL_BYTES_SCHEMA,
                value,
                offset,
                appendedMs,
                TimestampType.LOG_APPEND_TIME,
                headers);
    }

    void put(long from, String... changes) {
        task.put(records(from, changes));
    }

    /** What the task tells over JMX: attribute → value. */
    Map<String, Object> metrics() throws JMException {
        MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
        ObjectName name =
                new ObjectName("io.towpath:type=sink,connector=%1$s,task=0,pipeline=%1$s".formatted(PIPELINE));
        Map<String, Object> metrics = new HashMap<>();
        for (MBeanAttributeInfo attribute : beans.getMBeanInfo(name).getAttributes())
            metrics.put(attribute.getName(), beans.getAttribute(name, attribute.getName()));
        return metrics;
    }

    static List<BsonDocument> documents(String... json) {
        return Arrays.stream(json).map(BsonDocument::parse).toList();
    }

    static List<BsonDocument> stored(MongoCollection<RawBsonDocument> collection) {
        return new ArrayList<>(
                collection.find().sort(BsonDocument.parse("{_id: 1}")).into(new ArrayList<>()));
    }

    @Override
    public void close() {
        task.close(List.of(partition));
        task.stop();
    }
}
