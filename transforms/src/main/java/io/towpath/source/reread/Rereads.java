package io.towpath.source.reread;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import io.towpath.net.ReadFault;
import io.towpath.net.RetryCause;
import io.towpath.net.ServerError;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.source.copy.AddedCopy;
import io.towpath.source.copy.DocumentCursor;
import io.towpath.source.copy.DriverKey;
import io.towpath.source.copy.SnapshotReads;
import io.towpath.source.ddl.SchemaCapture;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.RowTimes;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads as of the stream's own position, between two events: requested documents, documents that changed while they were copied in natural
 * order, and collections that were added to a running pipeline. After each batch of events, also the changed documents of collections of
 * which only some leave. What cannot be read now waits, and the stream continues.
 */
public final class Rereads implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(Rereads.class);
    private static final long PAUSE_NS = Duration.ofSeconds(1).toNanos();
    private static final String GONE = " is dropped or renamed by a schema change that has to come first";
    private static final String BY_ID = "Remove the pipeline with its topics, and deploy it with copy_order = \"id\"";
    private static final String SELECTED = "Remove the document, or `only` from the rules of the collection";

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
        this.added = new AddedCopy(progress, reads, schema);
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
        MongoException unavailable = null;
        try {
            for (String namespace : rows().pendingNamespaces()) {
                try {
                    return readPending(namespace, time, Set.of());
                } catch (MongoException error) {
                    if (!ReadFault.isAboutTime(error)) throw error;
                    unavailable = error; // a collection that cannot be read holds up no other one
                }
            }
            Optional<RereadRequest> request = first();
            if (request.isPresent())
                return request.get().closes().isEmpty() ? answer(request.get(), time) : close(request.get(), time);
            if (hasAdded()) return added.next(time);
            return unavailable == null ? List.of() : pause(unavailable, time);
        } catch (MongoException error) {
            if (ReadFault.isInterrupt(error)) return List.of();
            if (!ReadFault.isTransient(error)) {
                throw new ConnectException(
                        "documents cannot be re-read at the source: " + ReadFault.message(error), error);
            }
            return pause(error, time);
        }
    }

    /**
     * Some changed documents of a collection of which only some leave, as of {@code time}. All events up to then must be taken, and no later
     * one. Throws the driver's exceptions.
     *
     * @param before as of each of these times, the log may hold what was selected then, and as of no other; empty: it may hold anything
     * @return empty where they have to wait, as nothing can be said of the collection as of this time
     */
    public Optional<List<SourceRecord>> readChanged(String namespace, ClusterTime time, Set<ClusterTime> before)
            throws InterruptedException {
        try {
            long pausedBefore = pausedUntil;
            List<SourceRecord> records = readPending(namespace, time, before);
            return pausedUntil == pausedBefore ? Optional.of(records) : Optional.empty();
        } catch (MongoException error) {
            if (!ReadFault.isAboutTime(error)) throw error;
            progress.metrics().retried(RetryCause.of(error), ReadFault.message(error));
            LOGGER.warn("changed documents of {} have to wait: {}", namespace, ReadFault.message(error));
            return Optional.empty();
        }
    }

    /** The collections of which only some documents leave, and some that have changed are still to be read. */
    public List<String> changed() {
        return rows().pendingNamespaces().stream().filter(this::isSelective).toList();
    }

    private boolean isSelective(String namespace) {
        return progress.rules().only(namespace).isPresent();
    }

    private List<SourceRecord> pause(MongoException error, ClusterTime time) {
        String reason = ReadFault.isAboutTime(error) && !ReadFault.isOfACapped(error)
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
            if (reads.source().isView(request.namespace()))
                return skip(request, "it is a view, whose documents are those of other collections");
            answer = RereadAnswer.read(request, index, time, reads);
        } catch (MongoException error) {
            if (isRefusal(error)) return skip(request, ReadFault.message(error));
            if (ReadFault.isOfACapped(error))
                return skip(request, "it is a capped collection, which no server reads as of a known time");
            throw error;
        }
        if (mayBeGone(answer)) return pause(answer.namespace() + GONE);
        int answered = index + answer.keys().size();
        boolean isAll = answered == request.keys().size();
        if (isAll) requests.answered();
        move(requests.next(), isAll ? 0 : answered, "");
        progress.metrics().reread(answer.keys().size());
        return answer.records(progress, answer.gone(), partition, position.offset());
    }

    /**
     * The keys of those documents among these that leave, as of a time; empty where nothing can be said of the collection as of this time.
     * Throws the driver's exceptions.
     */
    public Optional<Set<ByteBuffer>> selected(String namespace, List<byte[]> keys, ClusterTime time)
            throws InterruptedException {
        Set<ByteBuffer> found = find(namespace, keys, time);
        boolean isAll = keys.stream().map(ByteBuffer::wrap).allMatch(found::contains);
        return isAll || !mayBeGone(namespace) ? Optional.of(found) : Optional.empty();
    }

    private Set<ByteBuffer> find(String namespace, List<byte[]> keys, ClusterTime time) {
        Set<ByteBuffer> found = new HashSet<>();
        try (ClientSession session = reads.source().snapshot(time)) {
            for (List<byte[]> rest = keys; !rest.isEmpty(); ) {
                List<byte[]> some = RereadAnswer.firstKeys(rest);
                try (DocumentCursor ids = reads.ids(namespace, session, RereadAnswer.filter(some))) {
                    ids.forEachRemaining(id -> found.add(ByteBuffer.wrap(CanonicalKey.of(id))));
                }
                rest = rest.subList(some.size(), rest.size());
            }
        }
        return found;
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
        return answer.documents().isEmpty() && mayBeGone(answer.namespace());
    }

    private boolean mayBeGone(String namespace) throws InterruptedException {
        return schema != null && schema.mayBeGone(namespace).orElse(true);
    }

    /**
     * Documents that changed while their collection was copied in natural order, or of which only some leave.
     *
     * @param before see {@link #readChanged}
     */
    private List<SourceRecord> readPending(String namespace, ClusterTime time, Set<ClusterTime> before)
            throws InterruptedException {
        List<byte[]> keys = rows().nextPending(namespace);
        boolean isSelective = isSelective(namespace);
        if (isSelective) requireExact(namespace, keys);
        RereadAnswer answer = RereadAnswer.read(RereadRequest.of(namespace, keys), 0, time, reads);
        List<byte[]> gone = answer.gone();
        List<byte[]> deleted = before.isEmpty() ? gone : selected(namespace, gone, before);
        // where it is gone by now, the server finds nothing as of any time
        boolean saysNothing = answer.documents().isEmpty() || deleted.size() < gone.size();
        if (saysNothing && mayBeGone(namespace)) return pause(namespace + GONE);
        boolean hasWaited = !position.waiting().isEmpty();
        if (hasWaited) move(position.next(), position.index(), "");
        List<SourceRecord> records = answer.records(progress, deleted, partition, position.offset());
        if (hasWaited && records.isEmpty()) records.add(offsetRecord("changed documents: none is selected"));
        if (isSelective) {
            progress.metrics().streamed(records.size());
            records.addAll(progress.ledger().settled(namespace, answer.keys()));
        } else {
            progress.metrics().reread(answer.keys().size());
            records.addAll(progress.ledger().reread(namespace, answer.keys(), time));
        }
        return records;
    }

    /** The message does not name the document, which may not leave. */
    private static void requireExact(String namespace, List<byte[]> keys) {
        if (!keys.stream().allMatch(DriverKey::isExact))
            throw new ConnectException(
                    "a document of %s has changed, and whether the filter `only` selects it cannot be asked, as no driver sends its _id unchanged. Remove `only` from the rules of the collection, or exclude the collection"
                            .formatted(namespace));
    }

    /** Those of these keys whose documents were selected as of any of these times, or when their rows were read; all, where that is unknown. */
    private List<byte[]> selected(String namespace, List<byte[]> keys, Set<ClusterTime> before) {
        if (keys.isEmpty()) return keys;
        TreeSet<ClusterTime> times = new TreeSet<>(before);
        ClusterTime known = times.last();
        if (rows().isMixed(namespace) && progress.ledger().largestTime().isAfter(known)) return keys;
        for (byte[] key : keys)
            rows().timeOf(namespace, key).filter(read -> read.isAfter(known)).ifPresent(times::add);
        Set<ByteBuffer> found = new HashSet<>();
        try {
            for (ClusterTime time : times) found.addAll(find(namespace, keys, time));
        } catch (MongoException error) {
            if (!ReadFault.isAboutTime(error)) throw error;
            return keys;
        }
        return keys.stream().filter(key -> found.contains(ByteBuffer.wrap(key))).toList();
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
