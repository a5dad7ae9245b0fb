package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonArray;
import org.bson.BsonString;

/** The cluster times as of which rows and single documents were read. They contain all earlier events, which the stream may still bring. */
public final class RowTimes {
    /** The part of the heap that pending documents may take. */
    private static final int PENDING_SHARE = 4;
    /** Bytes of a key that fits a record of 1 MB in Base64. */
    private static final int LARGEST_PENDING = 700_000;
    /** Single documents, of 78 bytes each, so that the root offset stays well below 1 MB. */
    private static final int MOST_DOCUMENTS = 5_000;

    private final Map<String, Optional<CollectionCopy>> copies = new LinkedHashMap<>();
    private DocumentTimes documents = new DocumentTimes();
    /** Of rows that were read before the copy of their collection started again. */
    private final Map<String, Times> abandoned = new HashMap<>();

    /** The collections whose copy follows a schema change. */
    private final Set<String> refilled = new TreeSet<>();

    private final Map<String, PendingKeys> pending = new HashMap<>();
    /** Of collections of which it is {@linkplain #isMixed unknown} which row was read when; empty when they have to be computed again. */
    private final Map<String, Optional<Times>> mixedTimes = new HashMap<>();

    private boolean isLargestKnown;
    /** Null when no row and no document is remembered. */
    private ClusterTime largest;

    /** @param root the root offset; null when nothing is stored */
    RowTimes(Map<String, Object> root, Partitions partitions, OffsetStorageReader reader) {
        if (root == null) return;
        documents = DocumentTimes.parse((String) root.getOrDefault("read", ""));
        List<String> namespaces = JsonArrays.parse((String) root.get("namespaces")).stream()
                .map(namespace -> namespace.asString().getValue())
                .toList();
        add(namespaces);
        JsonArrays.parse((String) root.getOrDefault("refilled", "[]"))
                .forEach(namespace -> refilled.add(namespace.asString().getValue()));
        readAbandoned(root);
        List<String> others = JsonArrays.parse((String) root.getOrDefault("pending", "[]")).stream()
                .map(namespace -> namespace.asString().getValue())
                .toList();
        Stream.concat(namespaces.stream(), others.stream()).forEach(namespace -> {
            PendingKeys keys = partitions.pendingKeys(namespace, reader);
            if (!keys.isEmpty()) pending.put(namespace, keys);
        });
        readPlans(partitions, reader);
    }

    /** Reads the plans that are stored of collections which have none here, and how far their ranges are. */
    void readPlans(Partitions partitions, OffsetStorageReader reader) {
        List<String> unplanned = copies.keySet().stream()
                .filter(namespace -> copies.get(namespace).isEmpty())
                .toList();
        if (unplanned.isEmpty()) return;
        partitions.plans(unplanned, reader).forEach((namespace, plan) -> {
            Map<Integer, Map<String, Object>> ranges = partitions.ranges(namespace, plan.ranges(), reader);
            copies.put(namespace, Optional.of(new CollectionCopy(plan, ranges::get)));
        });
    }

    /** Reads of which collections rows were read before their copy started again. */
    void readAbandoned(Map<String, Object> root) {
        BsonArray times = JsonArrays.parse((String) root.getOrDefault("abandoned", "[]"));
        for (int index = 0; index < times.size(); index += 3)
            abandoned.put(
                    times.get(index).asString().getValue(),
                    new Times(
                            ClusterTime.parse(times.get(index + 1).asString().getValue()),
                            ClusterTime.parse(times.get(index + 2).asString().getValue())));
    }

    /** Reads how far the other tasks have come with ranges that are not done here. */
    void readOthers(CopyShare share, Partitions partitions, OffsetStorageReader reader) {
        Map<String, IntStream> open = new LinkedHashMap<>();
        copies.forEach((namespace, copy) -> copy.ifPresent(
                planned -> open.put(namespace, planned.open().filter(range -> !has(share, namespace, range)))));
        partitions.ranges(open, reader, (namespace, range, offset) -> copies.get(namespace)
                .orElseThrow()
                .restore(range, offset));
        timesChanged();
    }

    /** Whether a task reads a range. One member at one cluster time is read in natural order: by the first task. */
    public boolean has(CopyShare share, String namespace, int range) {
        return taskOf(share, namespace, range) == share.task();
    }

    private int taskOf(CopyShare share, String namespace, int range) {
        return isMixed(namespace) ? 0 : share.taskOf(namespace, range);
    }

    /** Whether it is unknown which row of the collection was read when: in natural order, or before its copy started again. */
    public boolean isMixed(String namespace) {
        return abandoned.containsKey(namespace) || isNatural(namespace);
    }

    private boolean isNatural(String namespace) {
        return copies.getOrDefault(namespace, Optional.empty())
                .filter(CollectionCopy::isNatural)
                .isPresent();
    }

    /** The collections that the initial copy reads; empty where one is not divided into ranges yet. */
    public Map<String, Optional<CollectionCopy>> initial() {
        if (refilled.isEmpty()) return copies;
        Map<String, Optional<CollectionCopy>> initial = new LinkedHashMap<>(copies);
        initial.keySet().removeAll(refilled);
        return initial;
    }

    /** Whether a task has nothing left to read of the initial copy. */
    public boolean isCopied(CopyShare share) {
        return initial().entrySet().stream().allMatch(entry -> entry.getValue()
                .filter(copy -> copy.open().noneMatch(range -> has(share, entry.getKey(), range)))
                .isPresent());
    }

    /** How many ranges of the initial copy are not done, by the number of their task. */
    public SortedMap<Integer, Long> open(CopyShare share) {
        SortedMap<Integer, Long> open = new TreeMap<>();
        initial()
                .forEach((namespace, copy) -> copy.ifPresent(planned ->
                        planned.open().forEach(range -> open.merge(taskOf(share, namespace, range), 1L, Long::sum))));
        return open;
    }

    void addTo(Map<String, Object> root) {
        List<BsonString> namespaces =
                copies.keySet().stream().map(BsonString::new).toList();
        root.put("namespaces", JsonArrays.of(namespaces));
        if (!documents.isEmpty()) root.put("read", documents.toString());
        if (!refilled.isEmpty())
            root.put(
                    "refilled",
                    JsonArrays.of(refilled.stream().map(BsonString::new).toList()));
        if (!pendingAlone().isEmpty())
            root.put(
                    "pending",
                    JsonArrays.of(pendingAlone().stream().map(BsonString::new).toList()));
        if (abandoned.isEmpty()) return;
        List<BsonString> times = new ArrayList<>();
        abandoned.forEach((namespace, each) -> Stream.of(namespace, each.first(), each.last())
                .forEach(value -> times.add(new BsonString(value.toString()))));
        root.put("abandoned", JsonArrays.of(times));
    }

    /** The collections that are not being copied, and of which documents are pending. */
    List<String> pendingAlone() {
        return pending.keySet().stream()
                .filter(namespace -> !copies.containsKey(namespace))
                .toList();
    }

    /** The collections that are being copied, or of which documents are pending. */
    public List<String> remembered() {
        return Stream.concat(copies.keySet().stream(), pendingAlone().stream()).toList();
    }

    /** A collection to copy because of a schema change. */
    void refill(String namespace) {
        add(List.of(namespace));
        refilled.add(namespace);
    }

    boolean isRefilled(String namespace) {
        return refilled.contains(namespace);
    }

    boolean isFullOfDocuments() {
        return documents.size() >= MOST_DOCUMENTS;
    }

    /** Whether rows of a collection, or single documents of it, were read as of {@code time} or later, or documents of it are pending. */
    boolean isAhead(String namespace, ClusterTime time) {
        return documents.isAhead(namespace, time)
                || pending.containsKey(namespace)
                || Stream.concat(
                                Stream.ofNullable(abandoned.get(namespace)).map(Times::last),
                                copies.getOrDefault(namespace, Optional.empty()).stream()
                                        .flatMap(CollectionCopy::largestTimes))
                        .anyMatch(read -> !time.isAfter(read));
    }

    /** Collections to copy. */
    void add(Collection<String> namespaces) {
        namespaces.forEach(namespace -> copies.put(namespace, Optional.empty()));
        timesChanged();
    }

    CollectionCopy plan(String namespace, RangePlan plan) {
        CollectionCopy copy = new CollectionCopy(plan);
        copies.put(namespace, Optional.of(copy));
        timesChanged();
        return copy;
    }

    RangeCopy advance(Page page) {
        RangeCopy range = range(page.namespace(), page.range());
        range.advance(page);
        mixedTimes.remove(page.namespace());
        extendTo(page.time());
        return range;
    }

    void addDocument(String namespace, byte[] key, ClusterTime time) {
        documents.add(namespace, key, time);
        extendTo(time);
    }

    private void timesChanged() {
        isLargestKnown = false;
        mixedTimes.clear();
    }

    private void extendTo(ClusterTime time) {
        if (isLargestKnown && (largest == null || time.isAfter(largest))) largest = time;
    }

    /** Every collection whose copy is in progress or whose times are still needed; empty where it is not divided into ranges yet. */
    public Map<String, Optional<CollectionCopy>> copies() {
        return copies;
    }

    public Stream<CollectionCopy> planned() {
        return copies.values().stream().flatMap(Optional::stream);
    }

    public RangeCopy range(String namespace, int range) {
        return copies.get(namespace).orElseThrow().range(range);
    }

    /** Whether the initial copy is read. */
    public boolean isCopied() {
        return initial().values().stream().allMatch(RowTimes::isDone);
    }

    /** Whether everything is read, also the collections that follow a schema change. */
    public boolean isComplete() {
        return copies.values().stream().allMatch(RowTimes::isDone);
    }

    private static boolean isDone(Optional<CollectionCopy> copy) {
        return copy.filter(CollectionCopy::isDone).isPresent();
    }

    /** Whether the collection is being copied, and not because of a schema change. */
    boolean isPartial(String namespace) {
        return copies.containsKey(namespace) && !isRefilled(namespace) && !isDone(copies.get(namespace));
    }

    /** Whether any row or document is remembered, or to be re-read. */
    public boolean holdsAny() {
        return !copies.isEmpty() || !documents.isEmpty() || !pending.isEmpty();
    }

    /**
     * See {@link Ledger#holds}. An initial copy reads the row later of an {@code _id} that it has not read.
     *
     * <p>Of a collection that is read in natural order, or whose copy started again, all rows of a round were read from T1 to T2, and which
     * one was read when is unknown, or whether it was read in an earlier round. Up to T1, each row of the round holds the change, and everything up to the round's beginning
     * is passed. A change after that, up to T2, makes the document pending: none of its changes are emitted until it is re-read.
     *
     * @param start where the round begins
     * @param isInitial whether the initial copy continues
     */
    boolean holds(String namespace, byte[] key, ClusterTime time, ClusterTime start, boolean isInitial) {
        if (isPending(namespace, key)) return true;
        boolean isReadLater = isInitial && copies.containsKey(namespace) && !isRefilled(namespace);
        if (!isReadLater && largestTime().filter(known -> !time.isAfter(known)).isEmpty()) return false;
        if (includes(documents.timeOf(namespace, key), time)) return true;
        if (!isMixed(namespace))
            return copies.getOrDefault(namespace, Optional.empty())
                    .flatMap(copy -> copy.timeOf(key))
                    .map(read -> !time.isAfter(read))
                    .orElse(isReadLater);
        Optional<Times> times = mixedTimes.computeIfAbsent(namespace, this::computeMixedTimes);
        if (times.isEmpty()) return isReadLater;
        if (time.isAfter(times.get().last())) return false;
        if (time.isAfter(times.get().first()) && time.isAfter(start)) addPending(namespace, key);
        return true;
    }

    /** Whether the row of an {@code _id} may be read later, so that it follows what is emitted now. */
    public boolean rowFollows(String namespace, byte[] key) {
        Optional<CollectionCopy> copy = copies.get(namespace);
        return copy != null && copy.filter(planned -> planned.hasRow(key)).isEmpty();
    }

    /** Whether the rows of a collection are all read, and {@linkplain CollectionCopy#confirm confirmed}; or it is not copied now. */
    public boolean isConfirmed(String namespace) {
        Optional<CollectionCopy> copy = copies.get(namespace);
        return copy == null || copy.filter(CollectionCopy::isConfirmed).isPresent();
    }

    /** The collections whose rows are all read and not yet confirmed. */
    public Map<String, CollectionCopy> unconfirmed() {
        Map<String, CollectionCopy> found = new LinkedHashMap<>();
        copies.forEach((namespace, copy) -> copy.filter(each -> each.isDone() && !each.isConfirmed())
                .ifPresent(each -> found.put(namespace, each)));
        return found;
    }

    /** Empty where no row was read. */
    private Optional<Times> computeMixedTimes(String namespace) {
        Optional<CollectionCopy> copy = copies.getOrDefault(namespace, Optional.empty());
        return Times.of(Stream.concat(
                Stream.ofNullable(abandoned.get(namespace)).flatMap(Times::stream),
                copy.stream().flatMap(each -> Stream.concat(each.smallestTimes(), each.largestTimes()))));
    }

    /** The cluster time as of which the row of an {@code _id} was read, if that is remembered, and the read was by {@code _id}s. */
    public Optional<ClusterTime> timeOf(String namespace, byte[] key) {
        return copies.getOrDefault(namespace, Optional.empty())
                .filter(copy -> !copy.isNatural())
                .flatMap(copy -> copy.timeOf(key));
    }

    /**
     * The document has to be re-read, and until then none of its changes are emitted. Throws {@link ConnectException} where that would take
     * too much memory.
     */
    void addPending(String namespace, byte[] key) {
        pending.computeIfAbsent(namespace, name -> new PendingKeys()).add(key);
        long memory = pending.values().stream().mapToLong(PendingKeys::memory).sum();
        if (memory > Runtime.getRuntime().maxMemory() / PENDING_SHARE || key.length > LARGEST_PENDING) {
            throw new ConnectException(
                    "TWP-COPY-PENDING: %,d documents of %s have changed, and the worker cannot keep more _ids until these documents are re-read. Give the worker a larger heap%s"
                            .formatted(
                                    pending.get(namespace).size(),
                                    namespace,
                                    isNatural(namespace)
                                            ? ", or remove the pipeline with its topics and deploy it with copy_order = \"id\""
                                            : ""));
        }
    }

    /** Whether a document has to be re-read. */
    public boolean isPending(String namespace, byte[] key) {
        PendingKeys keys = pending.get(namespace);
        return keys != null && keys.contains(key);
    }

    /** Documents that have to be re-read, of one collection, if there are any. */
    public Optional<Pending> nextPending() {
        return pending.keySet().stream().findFirst().map(namespace -> new Pending(namespace, nextPending(namespace)));
    }

    /** The collections that have any. */
    public List<String> pendingNamespaces() {
        return List.copyOf(pending.keySet());
    }

    /** Keys of documents of one of these that have to be re-read, in no order. */
    public List<byte[]> nextPending(String namespace) {
        return pending.get(namespace).next();
    }

    /** Keys of documents that have to be re-read, in no order. */
    public record Pending(String namespace, List<byte[]> keys) {}

    /** The offsets of documents that became pending since the last call. */
    List<SourceRecord> newPending(Partitions partitions) {
        List<SourceRecord> records = new ArrayList<>();
        pending.forEach((namespace, keys) ->
                keys.takeChanged().forEach(chunk -> records.add(partitions.pendingRecord(namespace, keys, chunk))));
        return records;
    }

    /** Some of {@link #nextPending()} are re-read: returns the offset without them, if there was one with them. */
    Optional<SourceRecord> removePending(String namespace, Collection<byte[]> answered, Partitions partitions) {
        PendingKeys keys = pending.get(namespace);
        OptionalInt chunk = keys.remove(answered);
        if (keys.isEmpty()) pending.remove(namespace);
        return chunk.isPresent()
                ? Optional.of(partitions.pendingRecord(namespace, keys, chunk.getAsInt()))
                : Optional.empty();
    }

    /** Forgets the offsets of a collection's pending documents. */
    List<SourceRecord> forgetPending(String namespace, Partitions partitions) {
        int chunks = Optional.ofNullable(pending.remove(namespace))
                .map(PendingKeys::chunks)
                .orElse(0);
        return IntStream.range(0, chunks)
                .mapToObj(chunk -> partitions.pendingRecord(namespace, new PendingKeys(), chunk))
                .toList();
    }

    /** The copy of a collection starts again, and its rows stay in the log. Returns the copy if it had begun. */
    Optional<CollectionCopy> abandon(String namespace) {
        Optional<Times> times = computeMixedTimes(namespace).or(() -> plannedTime(namespace));
        Optional<CollectionCopy> copy = forget(namespace);
        copies.put(namespace, Optional.empty());
        times.ifPresent(each -> abandoned.put(namespace, each));
        return copy;
    }

    /** Of a copy in natural order without any row: the collection stays one of the first task. */
    private Optional<Times> plannedTime(String namespace) {
        return copies.getOrDefault(namespace, Optional.empty())
                .flatMap(copy -> copy.plan().recordIds())
                .map(planned -> new Times(planned.time(), planned.time()));
    }

    private static boolean includes(Optional<ClusterTime> read, ClusterTime time) {
        return read.isPresent() && !time.isAfter(read.get());
    }

    /** The largest cluster time of any row or document that is remembered. */
    Optional<ClusterTime> largestTime() {
        if (!isLargestKnown)
            largest = Stream.concat(copyTimes(), documents.largestTime().stream())
                    .max(ClusterTime::compareTo)
                    .orElse(null);
        isLargestKnown = true;
        return Optional.ofNullable(largest);
    }

    private Stream<ClusterTime> copyTimes() {
        return Stream.concat(
                abandoned.values().stream().map(Times::last), planned().flatMap(CollectionCopy::largestTimes));
    }

    /** The times of rows before which the log lacks states of their collections. */
    Stream<ClusterTime> newTimes() {
        return Stream.concat(
                abandoned.values().stream().map(Times::last),
                initial().values().stream().flatMap(Optional::stream).flatMap(CollectionCopy::largestTimes));
    }

    /**
     * The collections whose rows the stream has passed: everything before {@code position} is emitted.
     *
     * @param onlyConfirmed whether only those count whose rows are confirmed
     */
    List<String> passed(ClusterTime position, boolean onlyConfirmed) {
        return copies.entrySet().stream()
                .filter(entry -> !onlyConfirmed || isConfirmed(entry.getKey()))
                .filter(entry -> entry.getValue()
                        .filter(copy -> isPassed(entry.getKey(), copy, position))
                        .isPresent())
                .map(Map.Entry::getKey)
                .toList();
    }

    private boolean isPassed(String namespace, CollectionCopy copy, ClusterTime position) {
        Times before = abandoned.get(namespace);
        return copy.isDone()
                && copy.largestTimes().allMatch(position::isAfter)
                && (before == null || position.isAfter(before.last()))
                && !pending.containsKey(namespace);
    }

    /** Returns the copy of this collection if it had begun. */
    Optional<CollectionCopy> forget(String namespace) {
        timesChanged();
        abandoned.remove(namespace);
        refilled.remove(namespace);
        Optional<CollectionCopy> copy = copies.remove(namespace);
        return copy == null ? Optional.empty() : copy;
    }

    /** Returns whether the stream has passed any document. */
    boolean forgetDocuments(ClusterTime position) {
        boolean hasPassed = documents.forget(position);
        if (hasPassed) isLargestKnown = false;
        return hasPassed;
    }

    /** Forgets the documents of these collections. */
    void forgetDocuments(Collection<String> namespaces) {
        namespaces.forEach(documents::forget);
        timesChanged();
    }

    void clearDocuments() {
        documents = new DocumentTimes();
        timesChanged();
    }
}
