package io.towpath.debezium;

import io.towpath.record.ClusterTime;
import java.util.Map;
import java.util.Optional;

/** The cluster time in Debezium's offset. */
public final class EventTime {
    private EventTime() {}

    /** That of the event that the offset belongs to, or of the stream's position where it belongs to none, as with heartbeats. */
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
