package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.sink.ddl.Barrier;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class BarriersTest {
    @Test
    void whatIsBehindASchemaChangeWaitsInItsPartitionOnly() {
        List<SinkRecord> records = Stream.of("0 4", "0 5", "0 6", "1 4", "1 5", "1 6")
                .map(text -> text.split(" "))
                .map(each ->
                        new SinkRecord("t", Integer.parseInt(each[0]), null, null, null, null, Long.parseLong(each[1])))
                .toList();
        Barrier barrier = new Barrier(null, null, "", 0, 5, null);
        assertEquals(
                List.of(records.get(0), records.get(3), records.get(4), records.get(5)),
                Barriers.before(Map.of(new TopicPartition("t", 0), barrier), records));
        assertEquals(records, Barriers.before(Map.of(), records));
    }
}
