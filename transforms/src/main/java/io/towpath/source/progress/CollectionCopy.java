package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** The copy of one collection: its plan, and how far each range is. */
public final class CollectionCopy {
    private final RangePlan plan;
    private final List<RangeCopy> ranges;
    private boolean isConfirmed;

    CollectionCopy(RangePlan plan) {
        this(plan, range -> null);
    }

    /** From offsets; {@code offsets} returns that of a range, or null when it has not begun. */
    CollectionCopy(RangePlan plan, IntFunction<Map<String, Object>> offsets) {
        this.plan = plan;
        this.ranges = new ArrayList<>();
        for (int range = 0; range < plan.ranges(); range++) ranges.add(restored(offsets.apply(range)));
    }

    private static RangeCopy restored(Map<String, Object> offset) {
        return offset == null ? new RangeCopy() : new RangeCopy(offset);
    }

    /** Another task has come this far with a range; {@code offset} is null when it has not begun. */
    void restore(int range, Map<String, Object> offset) {
        ranges.set(range, restored(offset));
    }

    public RangePlan plan() {
        return plan;
    }

    public RangeCopy range(int index) {
        return ranges.get(index);
    }

    public List<RangeCopy> ranges() {
        return ranges;
    }

    /** The first range that is not done. */
    public int firstOpen() {
        return open().findFirst().orElseThrow();
    }

    /** The ranges that are not done. */
    IntStream open() {
        return IntStream.range(0, ranges.size())
                .filter(index -> !ranges.get(index).isDone());
    }

    public boolean isDone() {
        return ranges.stream().allMatch(RangeCopy::isDone);
    }

    /** The rows are those of the collection that the stream's present events are of, and not of another one, or none, of its name. */
    public void confirm() {
        isConfirmed = true;
    }

    public boolean isConfirmed() {
        return isConfirmed;
    }

    /** Whether the ranges are of record ids: it is unknown then in which of them the row of an {@code _id} is. */
    boolean isNatural() {
        return plan.recordIds().isPresent();
    }

    /** The cluster time as of which the row of an {@code _id} was read, if it has been, in ranges of {@code _id}s. */
    Optional<ClusterTime> timeOf(byte[] key) {
        return ranges.get(plan.rangeOf(key)).timeOf(key);
    }

    /**
     * Whether all rows are in the log among which the row of an {@code _id} would be: those of its range, or, in natural order, all. Under a
     * default collation, which has another order, one range has all.
     */
    boolean hasRow(byte[] key) {
        return isNatural() ? isDone() : ranges.get(plan.rangeOf(key)).isDone();
    }

    Stream<ClusterTime> largestTimes() {
        return ranges.stream().flatMap(range -> range.largestTime().stream());
    }

    Stream<ClusterTime> smallestTimes() {
        return ranges.stream().flatMap(range -> range.smallestTime().stream());
    }
}
