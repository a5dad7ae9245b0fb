package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Chunks;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.junit.jupiter.api.Test;

class ChunkedRecordsTest {
    private static final TopicPartition PARTITION = new TopicPartition("x.shop.orders", 3);
    private static final byte[] VALUE =
            BsonBytes.of(BsonDocument.parse("{_id: 1}").append("text", new BsonString("abc".repeat(500))));
    private static final byte[] KEY = CanonicalKey.of(VALUE);
    private static final Chunks CHUNKS = Chunks.of(new byte[Chunks.ID_BYTES], KEY, VALUE, 400);
    private static final byte[] OTHER = BsonBytes.of(BsonDocument.parse("{_id: 2, n: 1}"));

    private final MockConsumer<byte[], byte[]> log = new MockConsumer<>("earliest");
    private final ChunkedRecords chunked = new ChunkedRecords(() -> log);
    private final List<SinkRecord> read = new ArrayList<>();

    private static SinkRecord record(long offset, byte[] key, byte[] value) {
        return new SinkRecord(
                PARTITION.topic(),
                PARTITION.partition(),
                null,
                key,
                null,
                value,
                offset,
                0L,
                TimestampType.LOG_APPEND_TIME);
    }

    /** The log from an offset on: the chunks that are not missing, each with as many other records behind it, and the document's record. */
    private SinkRecord holds(long first, int others, int missing) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long offset = first;
        for (int number = 0; number < CHUNKS.count(); number++) {
            if (number != missing) records.add(sent(offset, CHUNKS.key(KEY, number), CHUNKS.chunk(VALUE, number)));
            offset++;
            for (int other = 0; other < others; other++) records.add(sent(offset++, CanonicalKey.of(OTHER), OTHER));
        }
        for (ConsumerRecord<byte[], byte[]> each : records) read.add(record(each.offset(), each.key(), each.value()));
        SinkRecord last = record(offset, KEY, CHUNKS.value());
        read.add(last);
        log.updateBeginningOffsets(Map.of(PARTITION, first));
        log.updateEndOffsets(Map.of(PARTITION, offset + 1));
        for (int poll = 0; poll < 20; poll++)
            log.schedulePollTask(() -> {
                if (log.assignment().isEmpty()) return;
                long from = log.position(PARTITION);
                records.stream().filter(each -> each.offset() >= from).forEach(log::addRecord);
                log.addRecord(sent(last.kafkaOffset(), KEY, CHUNKS.value()));
            });
        return last;
    }

    private static ConsumerRecord<byte[], byte[]> sent(long offset, byte[] key, byte[] value) {
        return new ConsumerRecord<>(PARTITION.topic(), PARTITION.partition(), offset, key, value);
    }

    @Test
    void recordsWithoutChunksStayAsTheyAre() {
        List<SinkRecord> records = List.of(record(0, CanonicalKey.of(OTHER), OTHER), record(1, KEY, null));
        assertSame(records, chunked.joined(records));
    }

    @Test
    void chunksDirectlyBeforeTheRecordMakeItsValue() {
        SinkRecord last = holds(70, 0, -1);
        List<SinkRecord> joined = chunked.joined(read);
        assertEquals(read.size(), joined.size());
        for (int index = 0; index < CHUNKS.count(); index++) {
            assertTrue(ChunkedRecords.isChunk(joined.get(index)));
            assertNull(joined.get(index).value(), "their data is not kept");
            assertEquals(read.get(index).kafkaOffset(), joined.get(index).kafkaOffset());
        }
        SinkRecord whole = joined.get(CHUNKS.count());
        assertArrayEquals(VALUE, (byte[]) whole.value());
        assertEquals(last.kafkaOffset(), whole.kafkaOffset());
        assertSame(
                last,
                ChunkedRecords.original(whole),
                "a dead letter names the chunks, as the value would be too large");
    }

    @Test
    void aSinkThatBeginsBehindTheChunksReadsThem() {
        SinkRecord last = holds(70, 0, -1);
        assertArrayEquals(VALUE, (byte[]) chunked.joined(List.of(last)).get(0).value());
    }

    @Test
    void othersMayHaveWrittenInBetween() {
        SinkRecord last = holds(70, 40, -1);
        assertArrayEquals(VALUE, (byte[]) chunked.joined(List.of(last)).get(0).value());
    }

    @Test
    void aRecordOfWhichAChunkIsMissingStaysAsItIs() {
        SinkRecord last = holds(70, 3, 1);
        assertSame(last, chunked.joined(List.of(last)).get(0));
        assertSame(last, ChunkedRecords.original(last));
    }

    @Test
    void withoutAnAddressOfKafkaNothingIsFound() {
        SinkRecord last = record(9, KEY, CHUNKS.value());
        assertSame(
                last, ChunkedRecords.of(new Properties()).joined(List.of(last)).get(0));
    }

    @Test
    void aKafkaThatDoesNotAnswerIsAskedAgain() {
        SinkRecord last = record(9, KEY, CHUNKS.value());
        log.updateBeginningOffsets(Map.of(PARTITION, 0L));
        log.setPollException(new KafkaException("no broker"));
        assertThrows(RetriableException.class, () -> chunked.joined(List.of(last)));
    }
}
