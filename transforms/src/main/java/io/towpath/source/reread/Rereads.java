package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCursor;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads as of the stream's own position, between two events: documents that were asked for, and collections that were added to a
 * running pipeline. What cannot be read now waits, and the stream goes on.
 */
final class ReadAgain implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(ReadAgain.class);
    /** Of one answer. */
    private static final long MOST_BYTES = 8 << 20;

    private static final long PAUSE_NS = Duration.ofSeconds(1).toNanos();

    private final Ledger ledger;
    private final SourceCluster source;
    private final SourceSettings settings;
    private final SourceMetrics metrics;
    private final Optional<RequestLog> requests;
    private final Partitions partitions;
    private final Map<String, Object> partition;
    private long next;
    private int index;
    private String waiting;
    private long pausedUntil = System.nanoTime();

    ReadAgain(
            Ledger ledger,
            Partitions partitions,
            SourceCluster source,
            SourceSettings settings,
            SourceMetrics metrics,
            OffsetStorageReader reader,
            Predicate<String> selection) {
        this.ledger = ledger;
        this.source = source;
        this.settings = settings;
        this.metrics = metrics;
        this.partitions = partitions;
        partition = partitions.requests(settings.requestsTopic());
        Map<String, Object> offset = reader.offset(partition);
        next = offset == null ? 0 : ((Number) offset.get("next")).longValue();
        index = offset == null ? 0 : ((Number) offset.get("index")).intValue();
        waiting = offset == null ? "" : (String) offset.get("waiting");
        requests = settings.readsRequests()
                ? Optional.of(new RequestLog(settings.requestsTopic(), settings.requestsConsumer(), next, selection))
                : Optional.empty();
    }

    /** Whether there is something to read at the stream's next boundary. */
    boolean isPending() {
        return System.nanoTime() - pausedUntil >= 0 && (first().isPresent() || !ledger.isCopied());
    }

    private Optional<ReadRequest> first() {
        return requests.flatMap(RequestLog::first);
    }

    /** Says that requests were another connector's; empty when there is nothing to say. */
    Optional<SourceRecord> passedOver() {
        long read = requests.map(RequestLog::passed).orElse(next);
        if (read <= next) return Optional.empty();
        next = read;
        index = 0;
        return Optional.of(partitions.carrier(partition, offset(), "requests: read up to %d".formatted(next)));
    }

    /**
     * Some of what is pending, as it was at {@code moment}; empty when there is no more, or it has to wait. All events up to then must
     * be out and no later one.
     */
    List<SourceRecord> read(ClusterTime moment) {
        if (!isPending()) return List.of();
        try {
            Optional<ReadRequest> request = first();
            return request.isPresent() ? answer(request.get(), moment) : copy(moment);
        } catch (MongoException error) {
            if (ReadFault.isInterrupt(error)) return List.of();
            if (!ReadFault.passes(error)) {
                throw new ConnectException(
                        "documents cannot be read again at the source: " + ReadFault.words(error), error);
            }
            return pause(error, moment);
        }
    }

    private List<SourceRecord> pause(MongoException error, ClusterTime moment) {
        pausedUntil = System.nanoTime() + PAUSE_NS;
        String reason = ReadFault.isAboutTime(error)
                ? "the source does not hold its state of %s: capture lags behind by more than the source's minSnapshotHistoryWindowInSeconds, or a collection or its indexes changed since"
                        .formatted(new ClusterTime(moment.seconds(), 0))
                : ReadFault.words(error);
        metrics.retried(reason);
        LOGGER.warn("reading again has to wait: {}", reason);
        waiting = reason;
        return List.of(partitions.carrier(partition, offset(), "requests wait: " + reason));
    }

    /** Whatever the resnapshot asked for before is in the log at this moment. */
    private List<SourceRecord> close(ReadRequest request, ClusterTime moment) {
        ledger.close(request.closes(), moment);
        next = request.offset() + 1;
        index = 0;
        waiting = "";
        requests.orElseThrow().answered();
        String words = "resnapshot %s: closed".formatted(request.closes());
        return List.of(partitions.carrier(partition, offset(), words), ledger.rootRecord());
    }

    private List<SourceRecord> answer(ReadRequest request, ClusterTime moment) {
        if (!request.closes().isEmpty()) return close(request, moment);
        if (request.offset() != next) index = 0;
        List<byte[]> keys = request.keys().subList(index, request.keys().size());
        List<byte[]> documents = new ArrayList<>();
        byte[] last = Piece.END;
        boolean all = true;
        long bytes = 0;
        try (ClientSession session = source.snapshot(moment);
                MongoCursor<byte[]> cursor = source.documents(request.namespace(), session, among(keys))
                        .iterator()) {
            while (all && cursor.hasNext()) {
                byte[] document = cursor.next();
                documents.add(document);
                bytes += document.length;
                all = bytes < MOST_BYTES;
                if (!all) last = CanonicalKey.of(document);
            }
        }
        List<byte[]> gone = missing(keys, documents, last);
        int answered = documents.size() + gone.size();
        all = answered == keys.size();
        next = all ? request.offset() + 1 : request.offset();
        index = all ? 0 : index + answered;
        waiting = "";
        if (all) requests.orElseThrow().answered();
        List<SourceRecord> records = new ArrayList<>();
        Rows rows = new Rows(settings.name(), request.namespace(), partition, offset());
        rows.documents(documents, moment, records);
        rows.gone(gone, moment, records);
        metrics.readAgain(answered);
        return records;
    }

    private static BsonDocument among(List<byte[]> keys) {
        BsonArray ids = new BsonArray();
        keys.forEach(key -> ids.add(new RawBsonDocument(key).get("_id")));
        return new BsonDocument("_id", new BsonDocument("$in", ids));
    }

    /** The keys, up to {@code last} if there is one, that no document has; both lists are in the order of {@code _id}s. */
    private static List<byte[]> missing(List<byte[]> keys, List<byte[]> documents, byte[] last) {
        List<byte[]> missing = new ArrayList<>();
        int at = 0;
        for (byte[] key : keys) {
            if (last.length > 0 && BsonOrder.compare(key, last) > 0) break;
            if (at < documents.size() && BsonOrder.compare(key, documents.get(at)) == 0) at++;
            else missing.add(key);
        }
        return missing;
    }

    private Map<String, Object> offset() {
        return Map.of("next", next, "index", (long) index, "waiting", waiting);
    }

    private List<SourceRecord> copy(ClusterTime moment) {
        for (Map.Entry<String, Optional<CollectionCopy>> entry : ledger.copies().entrySet()) {
            String namespace = entry.getKey();
            Optional<CollectionCopy> copy = entry.getValue();
            if (copy.isEmpty()) {
                return List.of(
                        ledger.plan(namespace, RangeCutter.plan(source.collection(namespace), settings.rangeBytes())));
            }
            if (!copy.get().isDone()) return copy(namespace, copy.get(), moment);
        }
        return List.of();
    }

    private List<SourceRecord> copy(String namespace, CollectionCopy copy, ClusterTime moment) {
        int range = copy.firstOpen();
        byte[] after = copy.range(range).after();
        Page page;
        try (RangeRead pages =
                new RangeRead(source, source.snapshot(moment), namespace, range, copy.plan(), after, MOST_BYTES)) {
            page = pages.next();
        }
        List<SourceRecord> records = new ArrayList<>();
        new Rows(settings.name(), namespace, partitions.of(namespace, range), ledger.advance(page))
                .documents(page.documents(), moment, records);
        if (records.isEmpty()) records.add(ledger.rangeRecord(namespace, range));
        metrics.copied(page);
        return records;
    }

    @Override
    public void close() {
        requests.ifPresent(RequestLog::close);
    }
}
