package io.towpath.record;

import org.bson.BsonTimestamp;

/** A point in a cluster's history, as the oplog counts it: seconds since the epoch and an ordinal within the second, both unsigned. */
public record ClusterTime(long seconds, long ordinal) implements Comparable<ClusterTime> {
    public static ClusterTime of(BsonTimestamp timestamp) {
        return ofBits(timestamp.getValue());
    }

    /** From seconds and ordinal in one number, as a BSON timestamp has them. */
    public static ClusterTime ofBits(long bits) {
        return new ClusterTime(bits >>> 32, bits & 0xFFFF_FFFFL);
    }

    /** From {@code seconds:ordinal}. Throws {@link ContractException} on anything else. */
    public static ClusterTime parse(String text) {
        String[] parts = text.split(":", -1);
        try {
            if (parts.length == 2) return new ClusterTime(number(parts[0]), number(parts[1]));
        } catch (NumberFormatException error) {
            // reported below
        }
        throw new ContractException("'%s' is not a cluster time".formatted(text));
    }

    private static long number(String digits) {
        return Integer.toUnsignedLong(Integer.parseUnsignedInt(digits));
    }

    public long bits() {
        return seconds << 32 | ordinal;
    }

    public BsonTimestamp timestamp() {
        return new BsonTimestamp(bits());
    }

    /** The last cluster time before this one. */
    public ClusterTime previous() {
        return ofBits(bits() - 1);
    }

    /** The first cluster time after this one. */
    public ClusterTime next() {
        return ofBits(bits() + 1);
    }

    @Override
    public int compareTo(ClusterTime other) {
        return Long.compareUnsigned(bits(), other.bits());
    }

    public boolean isAfter(ClusterTime other) {
        return compareTo(other) > 0;
    }

    /** As a record's header has it. */
    @Override
    public String toString() {
        return seconds + ":" + ordinal;
    }
}
