package io.towpath.source.reread;

import com.mongodb.MongoException;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.net.ServerError;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.AddedCopy;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RowTimes;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads as of the stream's own position, between two events: requested documents, documents that changed while they were copied in natural
 * order, and collections that were added to a running pipeline.
 * What cannot be read now waits, and the stream continues.
 */
public final class Rereads implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(Rereads.class);
    private static final long PAUSE_NS = Duration.ofSeconds(1).toNanos();
    private static final String GONE = " is dropped or renamed by a schema change that has to come first";

    private final Progress progress;
    private final SnapshotReads reads;
    private final AddedCopy added;
    private final SchemaCapture schema;
    /** Null where no requests are read. */
    private final RequestLog requests;

    private final Map<String, Object> partition;
    private Position position;
    private long pausedUntil = System.nanoTime();

    /** @param schema null unless schema changes are captured; not closed by this */
    public Rereads(
            Progress progress,
            SnapshotReads reads,
            RereadSettings settings,
            OffsetStorageReader reader,
            Predicate<String> selection,
            SchemaCapture schema) {
        this(
                progress,
                reads,
                settings.topic(),
                settings.areUsed() ? RequestLog.consumer(settings.client()) : null,
                reader,
                selection,
                schema);
    }

    /** @param consumer of the request topic; null where no requests are read */
    Rereads(
            Progress progress,
            SnapshotReads reads,
            String topic,
            Consumer<byte[], byte[]> consumer,
            OffsetStorageReader reader,
            Predicate<String> selection,
            SchemaCapture schema) {
        this.progress = progress;
        this.reads = reads;
        this.schema = schema;
        this.added = new AddedCopy(progress, reads);
        partition = progress.partitions().requests(topic);
        position = Position.of(reader.offset(partition));
        requests = consumer == null
                ? null
                : new RequestLog(consumer, topic, position.next(), position.skipped(), selection, progress);
    }

    /** Whether there is something to read at the stream's next boundary. */
    public boolean isPending() {
        return System.nanoTime() - pausedUntil >= 0
                && (first().isPresent() || hasAdded() || rows().nextPending().isPresent());
    }

    /** Whether a collection has to be read as of the stream's position; none is while the initial copy continues. */
    private boolean hasAdded() {
        return progress.ledger().isStreaming() && !rows().isComplete();
    }

    private RowTimes rows() {
        return progress.ledger().rows();
    }

    /** None while the initial copy continues: a row that is read later would say nothing of a delete of what is answered now. */
    private Optional<RereadRequest> first() {
        return requests == null || !progress.ledger().isStreaming() ? Optional.empty() : requests.first();
    }

    /** The offset behind requests that are not to be answered; empty when there are none. */
    public Optional<SourceRecord> skipped() {
        long read = requests == null ? position.next() : requests.next();
        if (read <= position.next()) return Optional.empty();
        move(read, 0, position.waiting());
        return Optional.of(offsetRecord("requests: read up to %d".formatted(read)));
    }

    /**
     * Some of what is pending, as of {@code time}; empty when there is no more, or it has to wait. All events up to then must be emitted,
     * and no later one.
     */
    public List<SourceRecord> read(ClusterTime time) throws InterruptedException {
        if (!isPending()) return List.of();
        try {
            Optional<RowTimes.Pending> changed = rows().nextPending();
            if (changed.isPresent()) return readPending(changed.get(), time);
            Optional<RereadRequest> request = first();
            if (request.isEmpty()) return hasAdded() ? added.next(time) : List.of();
            return request.get().closes().isEmpty() ? answer(request.get(), time) : close(request.get(), time);
        } catch (MongoException error) {
            if (ReadFault.isInterrupt(error)) return List.of();
            if (!ReadFault.isTransient(error) && !ReadFault.isUnavailable(error)) {
                throw new ConnectException(
                        "documents cannot be re-read at the source: " + ReadFault.message(error), error);
            }
            return pause(error, time);
        }
    }

    private List<SourceRecord> pause(MongoException error, ClusterTime time) {
        String reason = ReadFault.isAboutTime(error)
                ? "the source does not hold its state of %s: capture lags behind by more than the source's minSnapshotHistoryWindowInSeconds, or a collection or its indexes changed since"
                        .formatted(new ClusterTime(time.seconds(), 0))
                : ReadFault.message(error);
        progress.metrics().retried(RetryCause.of(error), reason);
        return pause(reason);
    }

    private List<SourceRecord> pause(String reason) {
        pausedUntil = System.nanoTime() + PAUSE_NS;
        LOGGER.warn("re-reads have to wait: {}", reason);
        move(position.next(), position.index(), reason);
        return List.of(offsetRecord("requests wait: " + reason));
    }

    /** The log now holds everything that the resnapshot requested. */
    private List<SourceRecord> close(RereadRequest request, ClusterTime time) {
        progress.ledger().history().close(request.closes(), time);
        requests.answered();
        move(requests.next(), 0, "");
        return List.of(
                offsetRecord("request %d: closes a resnapshot".formatted(request.offset())),
                progress.ledger().rootRecord());
    }

    private List<SourceRecord> answer(RereadRequest request, ClusterTime time) throws InterruptedException {
        int index = request.offset() == position.next() ? position.index() : 0;
        RereadAnswer answer;
        try {
            answer = RereadAnswer.read(request, index, time, reads);
        } catch (MongoException error) {
            if (isRefusal(error)) return skip(request, ReadFault.message(error));
            if (ReadFault.isAboutTime(error) && reads.source().isCapped(request.namespace()))
                return skip(request, "it is a capped collection, which no server reads as of a known time");
            throw error;
        }
        if (mayBeGone(answer)) return pause(answer.namespace() + GONE);
        int answered = index + answer.keys().size();
        boolean isAll = answered == request.keys().size();
        if (isAll) requests.answered();
        move(requests.next(), isAll ? 0 : answered, "");
        progress.metrics().reread(answer.keys().size());
        return answer.records(progress, partition, position.offset());
    }

    /** Whether the server refuses the query, whatever the documents are. */
    private static boolean isRefusal(MongoException error) {
        return ServerError.BadValue.is(error) || ServerError.InvalidNamespace.is(error);
    }

    private List<SourceRecord> skip(RereadRequest request, String why) {
        requests.skip("request %d for documents of %s: %s".formatted(request.offset(), request.namespace(), why));
        requests.answered();
        move(requests.next(), 0, "");
        return List.of(offsetRecord("request %d: skipped".formatted(request.offset())));
    }

    /**
     * Whether the answer says nothing about the documents: the server finds none in a collection that was dropped or renamed since, and its
     * deletes would come before that change.
     */
    private boolean mayBeGone(RereadAnswer answer) throws InterruptedException {
        return answer.documents().isEmpty()
                && schema != null
                && schema.mayBeGone(answer.namespace()).orElse(true);
    }

    /** Documents that changed while their collection was copied in natural order. */
    private List<SourceRecord> readPending(RowTimes.Pending changed, ClusterTime time) throws InterruptedException {
        RereadRequest request = RereadRequest.of(changed.namespace(), changed.keys());
        RereadAnswer answer = RereadAnswer.read(request, 0, time, reads);
        if (mayBeGone(answer)) return pause(answer.namespace() + GONE);
        move(position.next(), position.index(), "");
        progress.metrics().reread(answer.keys().size());
        List<SourceRecord> records = answer.records(progress, partition, position.offset());
        records.addAll(progress.ledger().reread(changed.namespace(), answer.keys(), time));
        return records;
    }

    private void move(long next, int index, String waiting) {
        position =
                new Position(next, index, waiting, next == position.next() ? position.skipped() : requests.skipped());
    }

    private SourceRecord offsetRecord(String text) {
        return progress.partitions().offsetRecord(partition, position.offset(), text);
    }

    @Override
    public void close() {
        if (requests != null) requests.close();
    }

    /**
     * How far requests are answered, as an offset of the connector.
     *
     * @param next offset of the first request that is not answered
     * @param index how many of its documents are answered
     * @param waiting why the request waits; empty when it does not
     * @param skipped how many requests before it were skipped, as a whole or some of their documents
     */
    private record Position(long next, int index, String waiting, long skipped) {
        /** @param offset null before the first */
        static Position of(Map<String, Object> offset) {
            if (offset == null) return new Position(0, 0, "", 0);
            return new Position(
                    number(offset, "next"),
                    (int) number(offset, "index"),
                    (String) offset.get("waiting"),
                    number(offset, "skipped"));
        }

        private static long number(Map<String, Object> offset, String name) {
            return ((Number) offset.get(name)).longValue();
        }

        Map<String, Object> offset() {
            return Map.of("next", next, "index", (long) index, "waiting", waiting, "skipped", skipped);
        }
    }
}
