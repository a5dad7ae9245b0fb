package io.towpath.source.progress;

import io.towpath.record.ClusterTime;
import java.util.Optional;
import java.util.stream.Stream;

/** The cluster times as of which the rows of one collection were read: from the first to the last. */
record Times(ClusterTime first, ClusterTime last) {
    /** Empty for no times. */
    static Optional<Times> of(Stream<ClusterTime> times) {
        return times.map(time -> new Times(time, time)).reduce(Times::and);
    }

    Times and(Times other) {
        return new Times(
                first.isAfter(other.first) ? other.first : first, last.isAfter(other.last) ? last : other.last);
    }

    Stream<ClusterTime> stream() {
        return Stream.of(first, last);
    }
}
