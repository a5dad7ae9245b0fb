package io.towpath.sink;

import java.lang.ref.WeakReference;
import java.util.function.LongSupplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/** What the sink has received of one partition, and where offsets were missing between its records. */
final class Reading {
    private long next;
    /** The first record of the last poll, which Connect delivers once more when the sink did not take it. */
    private WeakReference<SinkRecord> first = new WeakReference<>(null);
    /** The first offset that was missing since the last check of the log; -1 when none was. */
    private long hole = -1;
    /** A record is known to follow this offset, up to which the log was clear. */
    private long unread = -1;

    private final LongSupplier clock;
    private long receivedNs;
    /** The last record that was read was found in the log of this leader. */
    private int provenEpoch = LogBounds.NO_EPOCH;
    /** Connect's consumer begins at the position without knowing which leader's record is before it. */
    private boolean isSeeked = true;

    /** @param clock in nanoseconds */
    Reading(long next, LongSupplier clock) {
        this.next = next;
        this.clock = clock;
        this.receivedNs = clock.getAsLong();
    }

    /** The destination's position was reloaded; the consumer continues there, or had passed it already. */
    void moveTo(long position) {
        next = position;
        isSeeked = true;
    }

    /** Nothing was received since the consumer was sent to the position. From then on, it notices a log that is cut short itself. */
    boolean isSeeked() {
        return isSeeked;
    }

    /** Whether another leader may have cut the log short since the last record that was read was found in it. */
    boolean isUnproven(LogBounds bounds) {
        return bounds.leaderEpoch() == LogBounds.NO_EPOCH || bounds.leaderEpoch() != provenEpoch;
    }

    void proven(LogBounds bounds) {
        provenEpoch = bounds.leaderEpoch();
    }

    /** The first record of a poll. Throws {@link LogBounds.Broken} when Kafka has gone back before what is applied. */
    void begin(TopicPartition partition, SinkRecord record, OffsetDocument position) {
        receivedNs = clock.getAsLong();
        if (first.get() == record) {
            next = record.kafkaOffset(); // delivered once more, and checked already
            return;
        }
        first = new WeakReference<>(record);
        if (record.kafkaOffset() < position.offset())
            throw LogBounds.beyondTheEnd(
                    partition, position, "Kafka's consumer went back to offset " + record.kafkaOffset());
        boolean beginsAtPosition = next <= position.offset();
        boolean isRepeated = record.kafkaOffset() < next;
        if (beginsAtPosition || isRepeated) next = Math.min(position.clear(), record.kafkaOffset());
    }

    void add(SinkRecord record) {
        if (record.kafkaOffset() > next && hole < 0) hole = next;
        next = record.kafkaOffset() + 1;
    }

    /** Whether the log begins behind an offset that was missing. */
    boolean hasLost(LogBounds bounds) {
        return hole >= 0 && bounds.start() > hole;
    }

    /** The log still holds the places where offsets were missing. */
    void checked() {
        hole = -1;
        isSeeked = false;
    }

    /** Whether everything received is applied, and nothing has come for this long. */
    boolean isQuiet(OffsetDocument position, long now, long quietNs) {
        return next <= position.clear() && now - receivedNs > quietNs;
    }

    boolean isUnreadBehind(OffsetDocument position) {
        return unread >= position.clear();
    }

    void unreadBehind(long offset) {
        unread = offset;
    }
}
