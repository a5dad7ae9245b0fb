package io.towpath.debezium;

import io.towpath.record.ClusterTime;
import java.util.Map;
import java.util.Optional;

/** The cluster time in Debezium's offset. */
public final class EventTime {
    private EventTime() {}

    /** The time of the offset's event; without an event, as with heartbeats, the time of the stream's position. */
    public static Optional<ClusterTime> of(Map<String, ?> offset) {
        if (offset == null) return Optional.empty();
        if (offset.get("sec") instanceof Number seconds
                && seconds.intValue() != -1
                && offset.get("ord") instanceof Number ordinal) {
            return Optional.of(new ClusterTime(
                    Integer.toUnsignedLong(seconds.intValue()), Integer.toUnsignedLong(ordinal.intValue())));
        }
        return offset.get("resume_token") instanceof String token
                ? Optional.of(ResumeToken.clusterTime(token))
                : Optional.empty();
    }
}
