package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.record.Chunks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
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
        return holds(first, others, missing, 0);
    }

    /** @param gap the offsets without records before the document's record */
    private SinkRecord holds(long first, int others, int missing, long gap) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long offset = first;
        for (int number = 0; number < CHUNKS.count(); number++) {
            if (number != missing) records.add(sent(offset, CHUNKS.key(KEY, number), CHUNKS.chunk(VALUE, number)));
            offset++;
            for (int other = 0; other < others; other++) records.add(sent(offset++, CanonicalKey.of(OTHER), OTHER));
        }
        for (ConsumerRecord<byte[], byte[]> each : records) read.add(record(each.offset(), each.key(), each.value()));
        SinkRecord last = record(offset + gap, KEY, CHUNKS.value());
        read.add(last);
        log.updateBeginningOffsets(Map.of(PARTITION, first));
        log.updateEndOffsets(Map.of(PARTITION, offset + gap + 1));
        for (int poll = 0; poll < 40; poll++)
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

    private static ConsumerRecord<byte[], byte[]> sent(long offset, byte[] key, byte[] value, long appendedMs) {
        return new ConsumerRecord<>(
                PARTITION.topic(),
                PARTITION.partition(),
                offset,
                appendedMs,
                TimestampType.LOG_APPEND_TIME,
                key.length,
                value.length,
                key,
                value,
                new RecordHeaders(),
                Optional.empty());
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
    void howFarAwayTheChunksAreDoesNotMatter() {
        SinkRecord last = holds(70, 0, -1, 1_000_000);
        assertArrayEquals(VALUE, (byte[]) chunked.joined(List.of(last)).get(0).value());
    }

    @Test
    void noChunkIsOlderThanTheTransaction() {
        SinkRecord last = record(1_000_000, KEY, CHUNKS.value());
        long beforeMs = last.timestamp() - Duration.ofMinutes(21).toMillis();
        log.updateBeginningOffsets(Map.of(PARTITION, 0L));
        log.updateEndOffsets(Map.of(PARTITION, last.kafkaOffset() + 1));
        List<Long> reads = new ArrayList<>();
        for (int poll = 0; poll < 40; poll++)
            log.schedulePollTask(() -> {
                reads.add(log.position(PARTITION));
                log.addRecord(sent(last.kafkaOffset() - 1, CanonicalKey.of(OTHER), OTHER, beforeMs));
                log.addRecord(sent(last.kafkaOffset(), KEY, CHUNKS.value()));
            });
        assertTrue(ChunkedRecords.isMissing(chunked.joined(List.of(last)).get(0)));
        assertEquals(1, reads.size(), "the log may go back for months");
    }

    @Test
    void aRecordOfWhichAChunkIsMissingKeepsWhatItHas() {
        SinkRecord last = holds(70, 3, 1);
        SinkRecord missing = chunked.joined(List.of(last)).get(0);
        assertTrue(ChunkedRecords.isMissing(missing));
        assertTrue(ChunkedRecords.isInChunks(missing));
        assertSame(last, ChunkedRecords.original(missing));
    }

    /** Retention, or someone, has deleted them: nothing says that a later record follows. */
    @Test
    void chunksThatWereCutOffWithTheBeginningOfTheLogAreNotKnownToBeReplaced() {
        SinkRecord last = holds(70, 0, 0);
        log.updateBeginningOffsets(Map.of(PARTITION, 71L));
        assertSame(last, chunked.joined(List.of(last)).get(0));
        assertFalse(ChunkedRecords.isMissing(last));
    }

    @Test
    void theEndOfALogThatWasCutShortIsNotWaitedFor() {
        SinkRecord last = holds(70, 0, -1);
        log.updateEndOffsets(Map.of(PARTITION, last.kafkaOffset()));
        assertSame(last, chunked.joined(List.of(last)).get(0));
    }

    @Test
    void aRecordThatTowpathDidNotWriteStopsNothing() {
        byte[] huge = BsonBytes.of(
                BsonDocument.parse(
                        "{$chunks: {of: {$binary: {base64: 'AAAAAAAAAAAAAAAAAAAAAA==', subType: '00'}}, count: 1, size: 2147483647, document: true}}"));
        for (SinkRecord foreign : List.of(
                record(1, null, CHUNKS.value()),
                record(2, new byte[3], CHUNKS.value()),
                record(3, BsonBytes.of(BsonDocument.parse("{a: 1}")), CHUNKS.value()),
                record(4, KEY, huge),
                record(5, KEY, BsonBytes.of(BsonDocument.parse("{$chunks: {}}")))))
            assertSame(foreign, chunked.joined(List.of(foreign)).get(0));
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
        log.updateEndOffsets(Map.of(PARTITION, 20L));
        log.setPollException(new KafkaException("no broker"));
        assertThrows(RetriableException.class, () -> chunked.joined(List.of(last)));
    }
}
