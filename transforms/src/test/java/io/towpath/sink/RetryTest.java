package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Context;
import java.time.Duration;
import org.apache.kafka.connect.errors.RetriableException;
import org.junit.jupiter.api.Test;

class RetryTest {
    private final Context context = new Context();
    private final RuntimeException error = new RuntimeException("no server");

    @Test
    void connectRetriesWhatLastsLongerThanTheLimit() throws InterruptedException {
        Retry retry = new Retry(Duration.ofMillis(300), context);
        retry.pause("write", error);
        Thread.sleep(300);
        RetriableException given = assertThrows(RetriableException.class, () -> retry.pause("write", error));
        assertEquals(error, given.getCause());
        assertEquals(5_000, context.timeoutMs);
        retry.succeeded();
        retry.pause("write", error);
    }

    @Test
    void aTaskThatShouldStopWaitsForNothing() {
        Retry retry = new Retry(Duration.ofDays(1), context);
        Thread.currentThread().interrupt();
        assertThrows(RetriableException.class, () -> retry.pause("write", error));
        assertTrue(Thread.interrupted());
    }
}
