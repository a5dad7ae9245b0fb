package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.mongodb.MongoNamespace;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.RenameCollectionOptions;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.record.SchemaChange;
import io.towpath.record.SchemaChange.Kind;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * A source of changes, and its log: what is done to its database is appended to the log as a source connector would, under the name of
 * another database, which is the destination's. Each document says in {@code life} which collection it was in: the n-th that was made.
 */
final class SchemaSource {
    final MongoDatabase database;
    final Map<TopicPartition, List<SinkRecord>> log = new LinkedHashMap<>();
    private final String destination;
    private final int partitions;
    private final Map<String, Integer> lives = new HashMap<>();
    private final Map<TopicPartition, Integer> gaps = new HashMap<>();
    private int newestLife;
    private long time;
    String lastId;

    SchemaSource(MongoClient client, String name, String destination, int partitions) {
        this.database = client.getDatabase(name);
        this.destination = destination;
        this.partitions = partitions;
        database.drop();
    }

    String topic(String collection) {
        return TestTask.PIPELINE + "." + destination + "." + collection;
    }

    List<TopicPartition> partitions(String collection) {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < partitions; number++) all.add(new TopicPartition(topic(collection), number));
        return all;
    }

    boolean has(String collection) {
        return lives.containsKey(collection);
    }

    List<String> collections() {
        return lives.keySet().stream().sorted().toList();
    }

    // Documents

    void insert(String collection, int id) {
        if (!has(collection)) create(collection, "{}");
        BsonDocument document = new BsonDocument("_id", new BsonInt32(id))
                .append("life", new BsonInt32(lives.get(collection)))
                .append("x", new BsonInt32(id));
        database.getCollection(collection, BsonDocument.class).insertOne(document);
        append(collection, id, "c", BsonBytes.of(document));
    }

    void insert(String collection, String id) {
        BsonDocument document = new BsonDocument("_id", new BsonString(id));
        database.getCollection(collection, BsonDocument.class).insertOne(document);
        append(collection, new BsonString(id), 0, "c", BsonBytes.of(document));
    }

    void set(String collection, int id, int x) {
        BsonDocument set = new BsonDocument("$set", new BsonDocument("x", new BsonInt32(x)));
        long found = database.getCollection(collection)
                .updateOne(new BsonDocument("_id", new BsonInt32(id)), set)
                .getModifiedCount();
        if (found == 1) append(collection, id, "u", BsonBytes.of(set));
    }

    void delete(String collection, int id) {
        long found = database.getCollection(collection)
                .deleteOne(new BsonDocument("_id", new BsonInt32(id)))
                .getDeletedCount();
        if (found == 1) append(collection, id, "d", null);
    }

    void delete(String collection, String id) {
        database.getCollection(collection).deleteOne(new BsonDocument("_id", new BsonString(id)));
        append(collection, new BsonString(id), 0, "d", null);
    }

    private void rows(String collection) {
        database.getCollection(collection, BsonDocument.class)
                .find()
                .forEach(row -> append(collection, row.getInt32("_id").getValue(), "r", BsonBytes.of(row)));
    }

    // Schema changes

    void run(String command) {
        database.runCommand(BsonDocument.parse(command));
    }

    void create(String collection, String options) {
        BsonDocument command = new BsonDocument("create", new BsonString(collection));
        BsonDocument.parse(options).forEach(command::append);
        database.runCommand(command);
        lives.put(collection, ++newestLife);
        barrier(Kind.CREATE, collection, "", false, BsonDocument.parse(options), List.of());
    }

    void createView(String view, String options) {
        BsonDocument command = new BsonDocument("create", new BsonString(view));
        BsonDocument.parse(options).forEach(command::append);
        database.runCommand(command);
        barrier(Kind.CREATE, view, "", true, BsonDocument.parse(options), List.of());
    }

    void dropView(String view) {
        database.getCollection(view).drop();
        barrier(Kind.DROP, view, "", true, new BsonDocument(), List.of());
    }

    void createIndex(String collection, String index) {
        createIndex(collection, index, true);
    }

    /** With {@code isMade} false only the log has it. */
    void createIndex(String collection, String index, boolean isMade) {
        if (!isMade) {
            barrier(Kind.CREATE_INDEXES, collection, "", false, new BsonDocument(), List.of(BsonDocument.parse(index)));
            return;
        }
        run("{createIndexes: '%s', indexes: [%s]}".formatted(collection, index));
        String name = BsonDocument.parse(index).getString("name").getValue();
        barrier(
                Kind.CREATE_INDEXES,
                collection,
                "",
                false,
                new BsonDocument(),
                indexes(collection).stream()
                        .filter(spec -> spec.getString("name").getValue().equals(name))
                        .toList());
    }

    void dropIndex(String collection, String name) {
        run("{dropIndexes: '%s', index: '%s'}".formatted(collection, name));
        barrier(
                Kind.DROP_INDEXES,
                collection,
                "",
                false,
                new BsonDocument(),
                List.of(new BsonDocument("name", new BsonString(name))));
    }

    void modify(String collection, String arguments) {
        BsonDocument command = new BsonDocument("collMod", new BsonString(collection));
        BsonDocument.parse(arguments).forEach(command::append);
        database.runCommand(command);
        barrier(Kind.MODIFY, collection, "", !has(collection), BsonDocument.parse(arguments), List.of());
    }

    void rename(String collection, String to) {
        move(collection, to);
        lives.put(to, lives.remove(collection));
        barrier(Kind.RENAME, collection, to, false, options(to), indexes(to));
        rows(to);
        complete(to);
    }

    private void move(String collection, String to) {
        database.getCollection(collection)
                .renameCollection(
                        new MongoNamespace(database.getName(), to), new RenameCollectionOptions().dropTarget(true));
    }

    void drop(String collection) {
        database.getCollection(collection).drop();
        lives.remove(collection);
        barrier(Kind.DROP, collection, "", false, new BsonDocument(), List.of());
    }

    /** As {@code $out} does. */
    void replace(String collection, int documents) {
        lives.put(collection, ++newestLife);
        String temporary = "tmp.agg_out." + newestLife;
        run("{create: '%s'}".formatted(temporary));
        for (int id = 0; id < documents; id++)
            database.getCollection(temporary, BsonDocument.class)
                    .insertOne(new BsonDocument("_id", new BsonInt32(id))
                            .append("life", new BsonInt32(newestLife))
                            .append("x", new BsonInt32(-id)));
        move(temporary, collection);
        barrier(Kind.REPLACE, collection, "", false, options(collection), indexes(collection));
        rows(collection);
        complete(collection);
    }

    private void complete(String collection) {
        barrier(Kind.COMPLETE, collection, lastId, false, new BsonDocument(), List.of());
    }

    BsonDocument options(String collection) {
        BsonDocument entry = database.listCollections(BsonDocument.class)
                .filter(new BsonDocument("name", new BsonString(collection)))
                .first();
        return entry.getDocument("options", new BsonDocument());
    }

    List<BsonDocument> indexes(String collection) {
        List<BsonDocument> indexes = database.getCollection(collection)
                .listIndexes(BsonDocument.class)
                .into(new ArrayList<>());
        indexes.removeIf(index -> index.getString("name").getValue().equals("_id_")
                || index.get("clustered", BsonBoolean.FALSE).equals(BsonBoolean.TRUE));
        return indexes;
    }

    /** Describes what exists, as when schema changes are switched on. */
    void describe(String collection) {
        snapshot(collection, options(collection), indexes(collection));
    }

    void snapshot(String collection, BsonDocument options, List<BsonDocument> indexes) {
        append(new SchemaChange(
                nextId(collection),
                Kind.CREATE,
                destination + "." + collection,
                "",
                false,
                options,
                indexes,
                true,
                Map.of(topic(collection), partitions)));
    }

    void barrier(
            Kind kind, String collection, String to, boolean isView, BsonDocument options, List<BsonDocument> indexes) {
        Map<String, Integer> topics = new HashMap<>(Map.of(topic(collection), partitions));
        if (kind == Kind.RENAME) topics.put(topic(to), partitions);
        boolean isNamespace = kind == Kind.RENAME;
        append(new SchemaChange(
                nextId(collection),
                kind,
                destination + "." + collection,
                isNamespace ? destination + "." + to : to,
                isView,
                options,
                indexes,
                false,
                topics));
    }

    private String nextId(String collection) {
        time++;
        lastId = "1700000000:%d/0/%s.%s".formatted(time, destination, collection);
        return lastId;
    }

    void append(SchemaChange change) {
        change.partitions().forEach((topic, count) -> {
            for (int number = 0; number < count; number++)
                append(new TopicPartition(topic, number), SchemaChange.OPERATION, change.key(), change.value());
        });
    }

    private void append(String collection, int id, String operation, byte[] value) {
        append(collection, new BsonInt32(id), Math.floorMod(id, partitions), operation, value);
    }

    private void append(String collection, BsonValue id, int partition, String operation, byte[] value) {
        time++;
        byte[] key = CanonicalKey.of(BsonBytes.of(new BsonDocument("_id", id)));
        append(new TopicPartition(topic(collection), partition), operation, key, value);
    }

    /** Now and then an offset is missing: the marker of a transaction. */
    private void append(TopicPartition partition, String operation, byte[] key, byte[] value) {
        List<SinkRecord> records = log.computeIfAbsent(partition, unused -> new ArrayList<>());
        int gap = gaps.merge(partition, 1, Integer::sum) % 5 == 0 ? 1 : 0;
        long offset =
                gap + (records.isEmpty() ? 0 : records.get(records.size() - 1).kafkaOffset() + 1);
        records.add(record(partition, offset, new ClusterTime(1_700_000_000, time), operation, key, value));
    }

    static SinkRecord record(
            TopicPartition partition, long offset, ClusterTime time, String operation, byte[] key, byte[] value) {
        ConnectHeaders headers = new ConnectHeaders();
        RecordHeaders contract = new RecordHeaders(operation, time, 1_700_000_000_123L);
        headers.addBytes(RecordHeaders.NAME, contract.text().getBytes(UTF_8));
        return new SinkRecord(
                partition.topic(),
                partition.partition(),
                Schema.OPTIONAL_BYTES_SCHEMA,
                key,
                Schema.OPTIONAL_BYTES_SCHEMA,
                value,
                offset,
                1_700_000_000_123L,
                TimestampType.LOG_APPEND_TIME,
                headers);
    }
}
