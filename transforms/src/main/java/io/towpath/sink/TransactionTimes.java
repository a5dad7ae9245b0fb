package io.towpath.sink;

import io.towpath.connector.MetricsBean;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * How long committed transactions took, from their start to the server's answer to the commit, as a histogram. Only the task's thread writes; any thread
 * may read.
 */
final class TransactionTimes {
    /** Upper bounds of the buckets, in ms; by default, the server ends a transaction after 60 s. */
    static final long[] BOUNDS_MS = {10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000};

    private final AtomicLongArray counts = new AtomicLongArray(BOUNDS_MS.length + 1);
    private volatile long micros;

    void add(long ns) {
        int bucket = 0;
        while (bucket < BOUNDS_MS.length && ns > BOUNDS_MS[bucket] * 1_000_000) bucket++;
        counts.lazySet(bucket, counts.get(bucket) + 1);
        micros += ns / 1_000;
    }

    /** How many took at most as long as the bound of this bucket; of the last bucket: all. */
    long within(int bucket) {
        long sum = 0;
        for (int at = 0; at <= bucket; at++) sum += counts.get(at);
        return sum;
    }

    /** As attributes: those within each bound in seconds, as Prometheus writes it, and the sum of all times. */
    MetricsBean addTo(MetricsBean bean) {
        for (int at = 0; at <= BOUNDS_MS.length; at++) {
            int bucket = at;
            String bound = at < BOUNDS_MS.length ? String.valueOf(BOUNDS_MS[at] / 1000.0) : "+Inf";
            bean.add(
                    "TransactionsWithin_" + bound,
                    "Transactions that took so many seconds or less",
                    () -> within(bucket));
        }
        return bean.add("TransactionSeconds", "How long all transactions took together", () -> micros / 1e6);
    }

    /** As the destination stores them: each transaction in one bucket. */
    void addTo(Map<String, Long> counters) {
        for (int at = 0; at <= BOUNDS_MS.length; at++)
            counters.put(
                    "transactionTimes." + (at < BOUNDS_MS.length ? String.valueOf(BOUNDS_MS[at]) : "longer"),
                    counts.get(at));
        counters.put("transactionUs", micros);
    }
}
