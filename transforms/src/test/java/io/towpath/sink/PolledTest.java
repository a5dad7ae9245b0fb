package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class PolledTest {
    private final Polled polled = new Polled(4, 10, 1_000);

    @Test
    void aPollThatIsNotFullIsAllThatIsThere() {
        polled.add(poll(0, 3, 100));
        assertFalse(polled.isMoreAvailable());
        polled.written();
        polled.add(List.of());
        assertFalse(polled.isMoreAvailable());
        assertEquals(List.of(), polled.all());
    }

    @Test
    void fullPollsAreTakenUpToWhatATransactionTakes() {
        polled.add(poll(0, 4, 1));
        assertTrue(polled.isMoreAvailable());
        polled.add(poll(0, 4, 1));
        assertFalse(polled.isMoreAvailable(), "4 more would be 12 of 10 records");
        assertEquals(8, polled.all().size());
        polled.written();
        polled.add(poll(0, 4, 100));
        assertTrue(polled.isMoreAvailable());
        polled.add(poll(0, 4, 100));
        polled.written();
        polled.add(poll(0, 4, 130));
        assertFalse(polled.isMoreAvailable(), "4 more would be 1,040 of 1,000 bytes");
    }

    @Test
    void whatConnectHandsOverOnceMoreIsThereOnce() {
        polled.add(poll(0, 4, 200));
        List<SinkRecord> before = polled.all();
        polled.add(poll(0, 2, 50));
        polled.handBack();
        assertEquals(before, polled.all());
        assertFalse(polled.isMoreAvailable());
        polled.add(poll(0, 4, 1));
        assertEquals(8, polled.all().size());
    }

    @Test
    void aPartitionThatGoesTakesItsRecordsAlong() {
        polled.add(poll(0, 4, 150));
        polled.add(poll(1, 4, 20));
        polled.forget(List.of(new TopicPartition("t", 0)));
        assertEquals(4, polled.all().size());
        assertTrue(polled.all().stream().allMatch(record -> record.kafkaPartition() == 1));
        assertTrue(polled.isMoreAvailable(), "the bytes went as well");
    }

    private static List<SinkRecord> poll(int partition, int records, int bytes) {
        List<SinkRecord> poll = new ArrayList<>();
        for (int i = 0; i < records; i++)
            poll.add(new SinkRecord("t", partition, null, new byte[1], null, new byte[bytes - 1], i));
        return poll;
    }
}
