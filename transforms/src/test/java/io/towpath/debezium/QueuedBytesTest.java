package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.support.Raw;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.bson.codecs.DecoderContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class QueuedBytesTest {
    private static final byte[] DOCUMENT = Raw.document(Raw.int32("_id", 1), Raw.string("text", "x".repeat(500)));
    private static final ChangeStreamDocument<BsonDocument> EVENT = event();
    private static final SourceRecord RECORD =
            DebeziumRecords.op("c").after(DOCUMENT).record();

    private final Map<String, String> settings = new HashMap<>(Map.of(QueuedBytes.LIMIT, "1000"));
    private final QueuedBytes bytes = QueuedBytes.insteadOf(settings);

    private static ChangeStreamDocument<BsonDocument> event() {
        BsonDocument document = new RawDocument.Codec()
                .decode(
                        new RawBsonDocument(DOCUMENT).asBsonReader(),
                        DecoderContext.builder().build());
        return new ChangeStreamDocument<>(
                "insert",
                new BsonDocument(),
                null,
                null,
                null,
                document,
                null,
                null,
                null,
                null,
                null,
                null,
                null,
                null,
                null);
    }

    @AfterEach
    void close() {
        bytes.close();
    }

    @Test
    void debeziumDoesNotCountByItself() {
        assertEquals("0", settings.get(QueuedBytes.LIMIT));
    }

    @Test
    void whatIsReadAndNotTakenBoundsWhatIsRead() throws Exception {
        read();
        bytes.dispatched();
        read(); // one event more than fits: one is in the queue, and one before it
        CompletableFuture<Void> third = CompletableFuture.runAsync(bytes::awaitRoom);
        assertTrue(isWaiting(third));
        bytes.taken(List.of(RECORD));
        third.get(10, TimeUnit.SECONDS);
        read();
        assertTrue(isWaiting(CompletableFuture.runAsync(bytes::awaitRoom)));
    }

    @Test
    void anEmptyQueueHasNoBytesOfEventsThatAreLeftOut() throws Exception {
        read();
        read();
        bytes.dispatched(); // and not put into the queue
        CompletableFuture<Void> next = CompletableFuture.runAsync(bytes::awaitRoom);
        assertTrue(isWaiting(next));
        bytes.taken(List.of());
        next.get(10, TimeUnit.SECONDS);
        read();
        CompletableFuture<Void> full = CompletableFuture.runAsync(bytes::awaitRoom);
        bytes.taken(List.of());
        assertTrue(isWaiting(full), "two events are read and not in the queue yet");
    }

    @Test
    void aStreamThatEndsDoesNotWait() throws Exception {
        read();
        read();
        CompletableFuture<Void> next = CompletableFuture.runAsync(bytes::awaitRoom);
        assertTrue(isWaiting(next));
        bytes.close();
        next.get(10, TimeUnit.SECONDS);
    }

    @Test
    void anInterruptReachesDebezium() throws Exception {
        read();
        read();
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            bytes.awaitRoom();
            interrupted.complete(Thread.currentThread().isInterrupted());
        });
        thread.start();
        assertFalse(interrupted.isDone());
        thread.interrupt();
        assertTrue(interrupted.get(10, TimeUnit.SECONDS));
    }

    @Test
    void withoutALimitNothingWaits() {
        try (QueuedBytes unlimited = QueuedBytes.insteadOf(new HashMap<>())) {
            for (int count = 0; count < 3; count++) unlimited.read(EVENT);
            unlimited.awaitRoom();
        }
    }

    private void read() {
        bytes.awaitRoom();
        bytes.read(EVENT);
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
