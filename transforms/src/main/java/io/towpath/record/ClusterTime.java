package io.towpath.record;

/** A moment of a cluster's history, as the oplog counts: seconds since the epoch and an ordinal within the second, both unsigned. */
public record ClusterTime(long seconds, long ordinal) {
    /** As the header {@code t} has it. */
    @Override
    public String toString() {
        return seconds + ":" + ordinal;
    }
}
