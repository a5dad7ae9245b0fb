package io.towpath.debezium;

import com.mongodb.client.model.changestream.ChangeStreamDocument;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;

/**
 * Bounds by their bytes the documents that one of Debezium's streams holds: in events that are read from the source, of which Debezium
 * itself only counts how many there are, and in the queue of records. With {@value #LIMIT}, Debezium bounds the queue, but encodes the text
 * of each event once more to know its size.
 */
final class QueuedBytes implements AutoCloseable {
    /** Debezium's setting, which a pipeline has. */
    static final String LIMIT = "max.queue.size.in.bytes";

    private final long limit;
    /** The sizes of the events that are read, and not in the queue yet. */
    private final Queue<Integer> read = new ArrayDeque<>();

    private long readBytes;
    private long queued;
    private boolean closed;

    private QueuedBytes(long limit) {
        this.limit = limit;
    }

    /** Takes the limit over from Debezium's settings. */
    static QueuedBytes insteadOf(Map<String, String> settings) {
        QueuedBytes bytes = new QueuedBytes(Long.parseLong(settings.getOrDefault(LIMIT, "0")));
        settings.put(LIMIT, "0");
        return bytes;
    }

    /** Waits until there is room for another event, unless the thread is interrupted. */
    synchronized void awaitRoom() {
        try {
            while (limit > 0 && readBytes + queued >= limit && !closed) wait();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt(); // Debezium looks before it waits for anything
        }
    }

    /** An event is read from the source. */
    synchronized void read(ChangeStreamDocument<BsonDocument> event) {
        int bytes =
                RawDocument.length(event.getFullDocument()) + RawDocument.length(event.getFullDocumentBeforeChange());
        read.add(bytes);
        readBytes += bytes;
    }

    /** The first event that is read goes into the queue, or is left out. */
    synchronized void dispatched() {
        Integer bytes = read.poll();
        if (bytes == null) return;
        readBytes -= bytes;
        queued += bytes;
    }

    /** What Debezium's poll took out of the queue. After a poll that found nothing, the queue is empty. */
    synchronized void taken(List<SourceRecord> records) {
        if (records == null || records.isEmpty()) queued = 0;
        else for (SourceRecord record : records) queued = Math.max(0, queued - documents(record));
        notifyAll();
    }

    /** The bytes of the documents in one of Debezium's records. */
    static int documents(SourceRecord record) {
        return record.value() instanceof Struct envelope ? length(envelope, "before") + length(envelope, "after") : 0;
    }

    private static int length(Struct envelope, String name) {
        return envelope.schema().field(name) != null && envelope.get(name) instanceof String text ? text.length() : 0;
    }

    @Override
    public synchronized void close() {
        closed = true;
        notifyAll();
    }
}
