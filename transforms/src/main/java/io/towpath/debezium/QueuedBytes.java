package io.towpath.debezium;

import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Bounds Debezium's queue by the bytes of the documents in it. Debezium does that by itself with {@value #LIMIT}, but encodes the text of
 * each event once more to know its size.
 */
final class QueuedBytes implements AutoCloseable {
    /** Debezium's setting, which a pipeline has. */
    static final String LIMIT = "max.queue.size.in.bytes";
    /** The setting by which {@link RawDocuments}, which Debezium makes, finds the bound of its stream. */
    private static final String ID = "towpath.queue.id";

    private static final Map<String, QueuedBytes> OPEN = new ConcurrentHashMap<>();

    private final String id = UUID.randomUUID().toString();
    private final long limit;
    private long queued;
    private boolean closed;

    private QueuedBytes(long limit) {
        this.limit = limit;
    }

    /** Takes the limit over from Debezium's settings. */
    static QueuedBytes insteadOf(Map<String, String> settings) {
        QueuedBytes bytes = new QueuedBytes(Long.parseLong(settings.getOrDefault(LIMIT, "0")));
        settings.put(LIMIT, "0");
        settings.put(ID, bytes.id);
        OPEN.put(bytes.id, bytes);
        return bytes;
    }

    /** Of the stream with these settings; null where Debezium bounds its queue itself. */
    static QueuedBytes of(Map<String, String> settings) {
        String id = settings.get(ID);
        return id == null ? null : OPEN.get(id);
    }

    /** A document goes into the queue. Waits while the queue is full, unless the thread is interrupted. */
    synchronized void add(int bytes) {
        try {
            while (limit > 0 && queued >= limit && !closed) wait();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt(); // Debezium looks before it puts anything into the queue
        }
        queued += bytes;
    }

    /** What Debezium's poll took out of the queue. After a poll that found nothing, the queue is empty. */
    synchronized void taken(List<SourceRecord> records) {
        if (records == null || records.isEmpty()) queued = 0;
        else
            for (SourceRecord record : records)
                if (record.value() instanceof Struct value) queued = Math.max(0, queued - documents(value));
        notifyAll();
    }

    private static int documents(Struct envelope) {
        return length(envelope, "before") + length(envelope, "after");
    }

    private static int length(Struct envelope, String name) {
        return envelope.schema().field(name) != null && envelope.get(name) instanceof String text ? text.length() : 0;
    }

    @Override
    public synchronized void close() {
        OPEN.remove(id);
        closed = true;
        notifyAll();
    }
}
