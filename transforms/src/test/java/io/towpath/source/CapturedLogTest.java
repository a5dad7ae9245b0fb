package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.jupiter.api.Test;

class CapturedLogTest {
    private static final TopicPartition ORDERS = new TopicPartition("p.shop.orders", 0);
    private static final TopicPartition OTHERS = new TopicPartition("p.shop.others", 1);

    private final MockConsumer<byte[], byte[]> consumer = new MockConsumer<>("earliest");
    private final Map<TopicPartition, Long> written = new HashMap<>();

    private void log(TopicPartition partition, long start, long stable, long end) {
        consumer.updateBeginningOffsets(Map.of(partition, start));
        consumer.updateEndOffsets(Map.of(partition, stable));
        written.put(partition, end);
    }

    private Set<String> topics() {
        return CapturedLog.topics(consumer, written);
    }

    @Test
    void nothingWasCapturedWhereTopicsAreNewOrMissing() {
        assertEquals(Set.of(), topics());
        log(ORDERS, 0, 0, 0);
        assertEquals(Set.of(), topics());
    }

    @Test
    void aTopicWithACommittedRecordWasCaptured() {
        log(ORDERS, 0, 5, 5);
        log(OTHERS, 0, 0, 0);
        consumer.schedulePollTask(() -> consumer.addRecord(new ConsumerRecord<>(ORDERS.topic(), 0, 2, null, null)));
        assertEquals(Set.of(ORDERS.topic()), topics());
    }

    /** The consumer passes aborted records and markers without returning them. */
    @Test
    void aTopicWithAbortedRecordsOnlyWasNotCaptured() {
        log(ORDERS, 0, 5, 5);
        consumer.schedulePollTask(() -> consumer.seek(ORDERS, 5));
        assertEquals(Set.of(), topics());
    }

    @Test
    void aTopicWhoseRecordsRetentionHasDeletedWasCaptured() {
        log(ORDERS, 8, 8, 8);
        assertEquals(Set.of(ORDERS.topic()), topics());
    }

    @Test
    void whatAnOpenTransactionHidesIsNotTakenForNothing() {
        log(ORDERS, 0, 0, 3);
        ConnectException error = assertThrows(ConnectException.class, this::topics);
        assertTrue(error.getMessage().contains("p.shop.orders-0"), error.getMessage());
        assertTrue(error.getMessage().contains("has not ended"), error.getMessage());
    }
}
