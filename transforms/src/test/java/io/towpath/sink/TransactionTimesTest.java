package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.connector.MetricsBean;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class TransactionTimesTest {
    private final TransactionTimes times = new TransactionTimes();

    @Test
    void aTimeCountsInTheFirstBucketThatHoldsIt() throws Exception {
        LongStream.of(10_000_000, 10_000_001, 300_000_000, 61_000_000_000L).forEach(times::add);
        Map<String, Long> stored = new LinkedHashMap<>();
        times.addTo(stored);
        assertEquals(List.of(1L, 1L, 0L, 0L, 0L, 1L, 0L, 0L, 0L, 0L, 1L, 61_320_000L), List.copyOf(stored.values()));
        assertEquals(
                List.of("transactionTimes.10", "transactionTimes.25"),
                List.copyOf(stored.keySet()).subList(0, 2));

        MetricsBean bean = times.addTo(new MetricsBean());
        assertEquals(1L, bean.getAttribute("TransactionsWithin_0.01"));
        assertEquals(2L, bean.getAttribute("TransactionsWithin_0.25"));
        assertEquals(3L, bean.getAttribute("TransactionsWithin_60.0"));
        assertEquals(4L, bean.getAttribute("TransactionsWithin_+Inf"));
        assertEquals(61.32, bean.getAttribute("TransactionSeconds"));
    }

    @Test
    void nothingIsCountedYet() {
        assertEquals(List.of(0L, 0L), Stream.of(0, 10).map(times::within).toList());
    }
}
