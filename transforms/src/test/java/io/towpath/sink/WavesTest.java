package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.DeleteOneModel;
import io.towpath.sink.Write.Kind;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.junit.jupiter.api.Test;

/** How writes are put into waves, and into the source's order. */
class WavesTest {
    private static final Map<String, MongoNamespace> NAMESPACES = Stream.of("db.a", "db.b", "db.0", "db.1")
            .collect(Collectors.toMap(Function.identity(), MongoNamespace::new));

    @Test
    void aWaveGoesClassByClassAndNamespaceByNamespace() {
        List<Write> writes = new ArrayList<>();
        for (int i = 0; i < 6; i++) writes.add(write(i, "db.a", i, Kind.values()[2 - i % 3]));
        writes.add(write(6, "db.b", 0, Kind.INSERT));

        List<List<Waves.Bulk>> waves = Waves.of(writes);

        assertEquals(1, waves.size());
        assertEquals(
                List.of("db.a DELETE [2, 5]", "db.a INSERT [1, 4]", "db.b INSERT [6]", "db.a CHANGE [0, 3]"),
                waves.get(0).stream().map(WavesTest::text).toList());
    }

    @Test
    void sameIdInAnotherNamespaceIsAnotherDocument() {
        List<List<Waves.Bulk>> waves =
                Waves.of(List.of(write(0, "db.a", 1, Kind.INSERT), write(1, "db.b", 1, Kind.CHANGE)));
        assertEquals(1, waves.size());
    }

    @Test
    void documentsWithOneHashAreTwo() {
        MongoNamespace namespace = NAMESPACES.get("db.a");
        Write.DocumentId left = new Write.DocumentId(namespace, new byte[] {0, 31});
        Write.DocumentId right = new Write.DocumentId(namespace, new byte[] {1, 0});
        assertEquals(left.hashCode(), right.hashCode());
        assertNotEquals(left, right);
    }

    @Test
    void manyChangesOfFewDocumentsEndInOneWaveInTheirOrder() {
        List<Write> writes = new ArrayList<>();
        for (int i = 0; i < 1_000; i++) writes.add(write(i, "db.a", i % 3, i % 2 == 0 ? Kind.CHANGE : Kind.DELETE));
        List<List<Waves.Bulk>> waves = Waves.of(writes);
        assertEquals(2, waves.size());
        assertEquals(1, waves.get(1).size());
        assertEquals(
                LongStream.range(3, 1_000).boxed().toList(),
                waves.get(1).get(0).writes().stream()
                        .map(write -> write.record().kafkaOffset())
                        .toList());
    }

    @Test
    void everyDocumentKeepsItsOrderAndOccursOnceInAWaveButTheLast() {
        Random random = new Random(7);
        for (int round = 0; round < 50; round++) {
            List<Write> writes = new ArrayList<>();
            int documents = 1 + random.nextInt(200);
            for (int i = 0; i < 500; i++) {
                int id = (int) Math.abs(random.nextGaussian() * documents / 2);
                writes.add(write(i, "db." + id % 2, id, Kind.values()[random.nextInt(3)]));
            }
            Map<String, Long> last = new HashMap<>();
            int seen = 0;
            List<List<Waves.Bulk>> waves = Waves.of(writes);
            for (List<Waves.Bulk> wave : waves) {
                boolean isLast = wave == waves.get(waves.size() - 1);
                Set<String> ofWave = new HashSet<>();
                for (Waves.Bulk bulk : wave) {
                    for (Write write : bulk.writes()) {
                        seen++;
                        assertEquals(write.namespace(), bulk.namespace());
                        String document = bulk.namespace() + " "
                                + ByteBuffer.wrap(write.document().id()).getInt();
                        long offset = write.record().kafkaOffset();
                        assertTrue(last.getOrDefault(document, -1L) < offset, document);
                        last.put(document, offset);
                        assertTrue(ofWave.add(document) || isLast, document);
                    }
                }
            }
            assertEquals(500, seen);
        }
    }

    @Test
    void sourceOrderGoesByTimeAcrossPartitionsAndNeverAgainstAPartitionsOwn() {
        List<Write> writes = List.of(
                timed(0, 0, "5:1"), timed(0, 1, "3:9"), timed(0, 2, "7:0"), timed(1, 10, "4:0"), timed(1, 11, "5:2"));
        assertEquals(
                List.of(10L, 0L, 1L, 11L, 2L),
                Waves.inSourceOrder(writes).stream()
                        .map(write -> write.record().kafkaOffset())
                        .toList());
        assertFalse(Waves.inOrder(writes).isEmpty());
    }

    private static String text(Waves.Bulk bulk) {
        return bulk.namespace() + " " + bulk.writes().get(0).kind() + " "
                + bulk.writes().stream()
                        .map(write -> write.record().kafkaOffset())
                        .toList();
    }

    private static Write write(long offset, String namespace, int id, Kind kind) {
        return write(new SinkRecord("topic", 0, null, null, null, null, offset), namespace, id, kind);
    }

    private static Write timed(int partition, long offset, String time) {
        ConnectHeaders headers = new ConnectHeaders();
        headers.addString("v", "1 d " + time + " 1");
        SinkRecord record = new SinkRecord(
                "topic", partition, null, null, null, null, offset, null, TimestampType.NO_TIMESTAMP_TYPE, headers);
        return write(record, "db.a", (int) offset, Kind.DELETE);
    }

    private static Write write(SinkRecord record, String namespace, int id, Kind kind) {
        byte[] key = ByteBuffer.allocate(4).putInt(id).array();
        DeleteOneModel<BsonDocument> model = new DeleteOneModel<>(new BsonDocument());
        return new Write(List.of(record), new Write.DocumentId(NAMESPACES.get(namespace), key), kind, model, 0, false);
    }
}
