package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoNamespace;
import com.mongodb.MongoTimeoutException;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import javax.management.JMException;
import javax.management.ObjectName;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class SinkMetricsTest {
    private static final SinkRecord RECORD = new SinkRecord("t", 0, null, new byte[2], null, new byte[8], 0);

    private final SinkMetrics metrics = new SinkMetrics("numbers", "p", 0);

    @AfterEach
    void close() {
        metrics.close();
    }

    @Test
    void whatIsAppliedAddsUp() throws JMException {
        assertEquals(0.0, attribute("RecordsPerWrite"));
        for (int batch = 1; batch <= 2; batch++) {
            SinkMetrics.WriteCounts counts = new SinkMetrics.WriteCounts()
                    .plus(bulk(write(Write.Kind.INSERT, false), write(Write.Kind.INSERT, false)), 2)
                    .plus(bulk(write(Write.Kind.CHANGE, false), write(Write.Kind.CHANGE, false)), 1)
                    .plus(bulk(write(Write.Kind.DELETE, true), write(Write.Kind.DELETE, false)), 1);
            assertEquals(new SinkMetrics.WriteCounts(2, 2, 2, 30, 1, 0), counts);
            metrics.applied(
                    List.of(RECORD, RECORD, RECORD, RECORD, RECORD, RECORD, RECORD, RECORD, RECORD), 3, 1, counts, 5);
            metrics.took(10 * batch);
        }
        metrics.retried(new MongoTimeoutException("no server"));
        metrics.retried(new Unanswered("no log"));

        Map<String, Long> counters = metrics.counters();
        assertEquals(
                List.of(2L, 18L, 12L, 6L, 4L, 4L, 4L, 2L, 180L, 60L, 30L, 2L, 2L),
                Stream.of(
                                "batches",
                                "records",
                                "writes",
                                "waves",
                                "inserts",
                                "updates",
                                "deletes",
                                "withoutDocument",
                                "bytes",
                                "bytesOut",
                                "batchMs",
                                "refused",
                                "retries")
                        .map(counters::get)
                        .toList());
        assertEquals(1.5, attribute("RecordsPerWrite"));
        assertEquals(15.0, attribute("MeanBatchMs"));
        assertEquals(20L, attribute("LongestBatchMs"));
        assertEquals("no log: Kafka does not answer", metrics.lastRetryReason());
        assertTrue(metrics.lastRetryAt() > 0);
    }

    private static Object attribute(String name) throws JMException {
        ObjectName bean = new ObjectName("io.towpath:type=sink,connector=numbers,task=0,pipeline=p");
        return ManagementFactory.getPlatformMBeanServer().getAttribute(bean, name);
    }

    private static Waves.Bulk bulk(Write... writes) {
        return new Waves.Bulk(new MongoNamespace("db.c"), List.of(writes));
    }

    private static Write write(Write.Kind kind, boolean mayMiss) {
        return new Write(List.of(RECORD), null, kind, null, 5, mayMiss);
    }
}
