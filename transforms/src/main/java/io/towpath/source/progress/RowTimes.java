package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import io.towpath.record.JsonArrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.bson.BsonString;

/** The cluster times as of which rows and single documents were read. They contain all earlier events, which the stream may still bring. */
public final class RowTimes {
    private final Map<String, Optional<CollectionCopy>> copies = new LinkedHashMap<>();
    private DocumentTimes documents = new DocumentTimes();
    /** Null when it has to be computed again. */
    private Optional<ClusterTime> largest;

    /** @param root the root offset; null when nothing is stored */
    RowTimes(Map<String, Object> root, Partitions partitions, OffsetStorageReader reader) {
        if (root == null) return;
        documents = DocumentTimes.parse((String) root.getOrDefault("read", ""));
        List<String> namespaces = JsonArrays.parse((String) root.get("namespaces")).stream()
                .map(namespace -> namespace.asString().getValue())
                .toList();
        add(namespaces);
        partitions.plans(namespaces, reader).forEach((namespace, plan) -> {
            Map<Integer, Map<String, Object>> ranges = partitions.ranges(namespace, plan.ranges(), reader);
            copies.put(namespace, Optional.of(new CollectionCopy(plan, ranges::get)));
        });
    }

    void addTo(Map<String, Object> root) {
        List<BsonString> namespaces =
                copies.keySet().stream().map(BsonString::new).toList();
        root.put("namespaces", JsonArrays.of(namespaces));
        if (!documents.isEmpty()) root.put("read", documents.toString());
    }

    /** Collections to copy. */
    void add(Collection<String> namespaces) {
        namespaces.forEach(namespace -> copies.put(namespace, Optional.empty()));
        largest = null;
    }

    CollectionCopy plan(String namespace, RangePlan plan) {
        CollectionCopy copy = new CollectionCopy(plan);
        copies.put(namespace, Optional.of(copy));
        return copy;
    }

    RangeCopy advance(Page page) {
        RangeCopy range = range(page.namespace(), page.range());
        range.advance(page);
        extendTo(page.time());
        return range;
    }

    void addDocument(String namespace, byte[] key, ClusterTime time) {
        documents.add(namespace, key, time);
        extendTo(time);
    }

    private void extendTo(ClusterTime time) {
        if (largest != null && largest.filter(known -> !time.isAfter(known)).isEmpty()) largest = Optional.of(time);
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

    public boolean isCopied() {
        return copies.values().stream()
                .allMatch(copy -> copy.isPresent() && copy.get().isDone());
    }

    /** Whether any row or document is remembered. */
    public boolean holdsAny() {
        return !copies.isEmpty() || !documents.isEmpty();
    }

    /** Whether the row of an {@code _id} holds a change of this time already. */
    public boolean holds(String namespace, byte[] key, ClusterTime time) {
        if (!holdsAny() || largestTime().filter(known -> !time.isAfter(known)).isEmpty()) return false;
        if (includes(documents.timeOf(namespace, key), time)) return true;
        return includes(copies.getOrDefault(namespace, Optional.empty()).flatMap(copy -> copy.timeOf(key)), time);
    }

    private static boolean includes(Optional<ClusterTime> read, ClusterTime time) {
        return read.isPresent() && !time.isAfter(read.get());
    }

    /** The largest cluster time of any row or document that is remembered. */
    Optional<ClusterTime> largestTime() {
        if (largest == null)
            largest =
                    Stream.concat(copyTimes(), documents.largestTime().stream()).max(ClusterTime::compareTo);
        return largest;
    }

    Stream<ClusterTime> copyTimes() {
        return planned().flatMap(CollectionCopy::largestTimes);
    }

    /** The collections whose rows the stream has passed: everything before {@code position} is emitted. */
    List<String> passed(ClusterTime position) {
        return copies.entrySet().stream()
                .filter(entry -> entry.getValue()
                        .filter(copy -> isPassed(copy, position))
                        .isPresent())
                .map(Map.Entry::getKey)
                .toList();
    }

    private static boolean isPassed(CollectionCopy copy, ClusterTime position) {
        return copy.isDone() && copy.largestTimes().allMatch(position::isAfter);
    }

    /** Returns the copy of this collection if it had begun. */
    Optional<CollectionCopy> forget(String namespace) {
        largest = null;
        return copies.remove(namespace);
    }

    /** Returns whether the stream has passed any document. */
    boolean forgetDocuments(ClusterTime position) {
        boolean hasPassed = documents.forget(position);
        if (hasPassed) largest = null;
        return hasPassed;
    }

    void clearDocuments() {
        documents = new DocumentTimes();
        largest = null;
    }
}
