package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.junit.jupiter.api.Test;

class LogEndTest {
    private static final TopicPartition FIRST = new TopicPartition("t", 0);
    private static final TopicPartition SECOND = new TopicPartition("t", 1);
    private static final TopicPartition EMPTY = new TopicPartition("t", 2);

    private final MockConsumer<byte[], byte[]> consumer = new MockConsumer<>("earliest");
    private final LogEnd end = new LogEnd(() -> consumer);

    private void holds(List<ConsumerRecord<byte[], byte[]>> records) {
        consumer.updateEndOffsets(Map.of(FIRST, 10L, SECOND, 20L, EMPTY, 3L));
        consumer.setMaxPollRecords(1);
        consumer.schedulePollTask(() -> records.forEach(consumer::addRecord));
    }

    private static ConsumerRecord<byte[], byte[]> record(TopicPartition partition, long offset, long atMs) {
        return new ConsumerRecord<>(partition.topic(), partition.partition(), offset, null, null) {
            @Override
            public long timestamp() {
                return atMs;
            }
        };
    }

    @Test
    void theFirstRecordBehindEachPositionHasATimeAndAnEndHasNone() {
        holds(List.of(record(FIRST, 4, 40), record(FIRST, 7, 70), record(FIRST, 8, 80), record(SECOND, 19, 190)));
        assertEquals(
                Map.of(FIRST, OptionalLong.of(70), SECOND, OptionalLong.of(190), EMPTY, OptionalLong.empty()),
                end.firstTimes(Map.of(FIRST, 5L, SECOND, 5L, EMPTY, 3L)));
        assertTrue(consumer.closed());
    }

    @Test
    void onlyTheRecordAtThePositionItselfHasItsTime() {
        holds(List.of(record(FIRST, 5, 50), record(FIRST, 6, 60), record(SECOND, 19, 190)));
        assertEquals(
                Map.of(FIRST, OptionalLong.of(50), SECOND, OptionalLong.empty()),
                end.timesAt(Map.of(FIRST, 5L, SECOND, 18L)));
    }

    @Test
    void whatKafkaDoesNotAnswerIsOmitted() {
        holds(List.of());
        consumer.setPollException(new KafkaException("no broker"));
        assertEquals(Map.of(EMPTY, OptionalLong.empty()), end.firstTimes(Map.of(FIRST, 5L, EMPTY, 3L)));
    }
}
