package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
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

    CollectionCopy(RangePlan plan) {
        this(plan, range -> null);
    }

    /** From offsets; {@code offsets} returns that of a range, or null when it has not begun. */
    CollectionCopy(RangePlan plan, IntFunction<Map<String, Object>> offsets) {
        this.plan = plan;
        this.ranges = IntStream.range(0, plan.ranges())
                .mapToObj(offsets)
                .map(offset -> offset == null ? new RangeCopy() : new RangeCopy(offset))
                .toList();
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
        return IntStream.range(0, ranges.size())
                .filter(index -> !ranges.get(index).isDone())
                .findFirst()
                .orElseThrow();
    }

    public boolean isDone() {
        return ranges.stream().allMatch(RangeCopy::isDone);
    }

    /** The cluster time as of which the row of an {@code _id} was read, if it has been. */
    Optional<ClusterTime> timeOf(byte[] key) {
        return ranges.get(plan.rangeOf(key)).timeOf(key);
    }

    Stream<ClusterTime> largestTimes() {
        return ranges.stream().flatMap(range -> range.largestTime().stream());
    }

    Stream<ClusterTime> smallestTimes() {
        return ranges.stream().flatMap(range -> range.smallestTime().stream());
    }
}
