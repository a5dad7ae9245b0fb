package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.support.Raw;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class QueuedBytesTest {
    private static final byte[] DOCUMENT = Raw.document(Raw.int32("_id", 1), Raw.string("text", "x".repeat(500)));
    private static final SourceRecord RECORD =
            DebeziumRecords.op("c").after(DOCUMENT).record();

    private final Map<String, String> settings = new HashMap<>(Map.of(QueuedBytes.LIMIT, "1000"));
    private final QueuedBytes bytes = QueuedBytes.insteadOf(settings);

    @AfterEach
    void close() {
        bytes.close();
    }

    @Test
    void debeziumDoesNotCountByItself() {
        assertEquals("0", settings.get(QueuedBytes.LIMIT));
    }

    @Test
    void theHookFindsTheBoundOfItsStreamUntilItIsClosed() {
        assertNotNull(QueuedBytes.of(settings));
        assertNull(QueuedBytes.of(Map.of()));
        bytes.close();
        assertNull(QueuedBytes.of(settings));
    }

    @Test
    void aFullQueueWaitsForWhatIsTaken() throws Exception {
        bytes.add(DOCUMENT.length);
        bytes.add(DOCUMENT.length); // the queue has one document more than fits
        CompletableFuture<Void> third = CompletableFuture.runAsync(() -> bytes.add(DOCUMENT.length));
        assertTrue(isWaiting(third));
        bytes.taken(List.of(RECORD));
        third.get(10, TimeUnit.SECONDS);
        assertTrue(isWaiting(CompletableFuture.runAsync(() -> bytes.add(1))));
    }

    @Test
    void anEmptyQueueHasNoBytes() throws Exception {
        bytes.add(5_000);
        CompletableFuture<Void> next = CompletableFuture.runAsync(() -> bytes.add(1));
        assertTrue(isWaiting(next));
        bytes.taken(List.of());
        next.get(10, TimeUnit.SECONDS);
    }

    @Test
    void aStreamThatEndsDoesNotWait() throws Exception {
        bytes.add(5_000);
        CompletableFuture<Void> next = CompletableFuture.runAsync(() -> bytes.add(1));
        assertTrue(isWaiting(next));
        bytes.close();
        next.get(10, TimeUnit.SECONDS);
    }

    @Test
    void anInterruptReachesDebezium() throws Exception {
        bytes.add(5_000);
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            bytes.add(1);
            interrupted.complete(Thread.currentThread().isInterrupted());
        });
        thread.start();
        assertFalse(interrupted.isDone());
        thread.interrupt();
        assertTrue(interrupted.get(10, TimeUnit.SECONDS));
    }

    @Test
    void withoutALimitNobodyWaits() {
        try (QueuedBytes unlimited = QueuedBytes.insteadOf(new HashMap<>())) {
            unlimited.add(Integer.MAX_VALUE);
            unlimited.add(Integer.MAX_VALUE);
        }
    }

    private static boolean isWaiting(CompletableFuture<?> future) throws Exception {
        try {
            future.get(200, TimeUnit.MILLISECONDS);
            return false;
        } catch (TimeoutException waiting) {
            return true;
        }
    }
}
