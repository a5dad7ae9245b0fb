package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.WriteModel;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

class TransactionTest {
    private static final MongoNamespace NAMESPACE = new MongoNamespace("db.c");

    @Test
    void eachPartitionEndsBehindItsLastRecord() {
        List<SinkRecord> records = List.of(
                record("a", 0, 5, 50L),
                record("a", 0, 9, 90L),
                record("a", 1, 3, 30L),
                record("b", 0, 7, null),
                record("a", 0, 10, 100L),
                record("a", 1, 4, 40L));
        assertEquals(
                Map.of(
                        new TopicPartition("a", 0), new Offsets.End(11, 100L),
                        new TopicPartition("a", 1), new Offsets.End(5, 40L),
                        new TopicPartition("b", 0), new Offsets.End(8, null)),
                Transaction.ends(records));
    }

    /** Such a document is there afterwards, or should not be. */
    @Test
    void anUpdateThatFindsNoneIsNoLossWhereItsDocumentIsMadeOrDeletedInTheSameTransaction() {
        BsonDocument nothing = new BsonDocument();
        Write lost = write(1, new UpdateOneModel<>(nothing, nothing));
        Write deleted = write(2, new UpdateOneModel<>(nothing, nothing));
        Write made = write(3, new UpdateOneModel<>(nothing, nothing));
        List<List<Waves.Bulk>> waves = List.of(
                List.of(bulk(lost, deleted, made), bulk(write(2, new DeleteOneModel<>(nothing)))),
                List.of(bulk(write(3, new UpdateOneModel<>(nothing, nothing, new UpdateOptions().upsert(true))))));
        assertEquals(List.of(lost), Transaction.lasting(List.of(lost, deleted, made), waves));
    }

    private static Waves.Bulk bulk(Write... writes) {
        return new Waves.Bulk(NAMESPACE, List.of(writes));
    }

    private static Write write(int id, WriteModel<BsonDocument> model) {
        Write.DocumentId document = new Write.DocumentId(NAMESPACE, new byte[] {(byte) id});
        return new Write(List.of(record("a", 0, 0, null)), document, Write.Kind.CHANGE, model, 0, false);
    }

    private static SinkRecord record(String topic, int partition, long offset, Long appendedMs) {
        return new SinkRecord(
                topic, partition, null, null, null, null, offset, appendedMs, TimestampType.LOG_APPEND_TIME);
    }
}
