package io.towpath.sink;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * One partition of the log, as Kafka reports it, and whether a sink can go on in it. {@code towpath/log/bounds.py} judges alike.
 *
 * @param topicId of the topic, which a topic of the same name that is made later does not have
 * @param start the first offset that is left
 * @param stable the end of what is committed
 * @param end of what is written
 */
record LogBounds(String topicId, long start, long stable, long end) {
    /** Where the ends were not asked for. */
    static final long UNKNOWN = Long.MAX_VALUE;

    private static final String WAY_ON =
            " Run `towpath restart PIPELINE --accept-log-gap`, which has the sink go on at %s; then "
                    + "`towpath verify PIPELINE`, which finds what differs, and `towpath repair PIPELINE`, which mends it. Where the log holds "
                    + "all documents, `towpath replay PIPELINE --rebuild` writes the destination anew instead. A replay has to begin anew";

    /** The log is not what the position is a position in. Its message begins with a code by which {@code towpath} knows it. */
    static final class Broken extends ConnectException {
        private static final long serialVersionUID = 1;

        Broken(String words) {
            super(words);
        }
    }

    /** What keeps a sink from going on at this position; nothing when all that was written behind it is still there. */
    Optional<Broken> broken(TopicPartition partition, OffsetDocument position) {
        if (position.topicId() != null && !position.topicId().equals(topicId))
            return Optional.of(new Broken(
                    "TWP-LOG-TOPIC: the topic of %s was deleted and made again: the sink had applied %s of the topic %s, and the topic is %s now."
                                    .formatted(partition, upTo(position), position.topicId(), topicId)
                            + WAY_ON.formatted("the new topic's beginning, offset " + start)));
        if (position.offset() > end) return Optional.of(beyondTheEnd(partition, position, "the log ends at " + end));
        return start > position.clear() && !isEmptyBehind(position)
                ? Optional.of(gap(partition, position))
                : Optional.empty();
    }

    /** A log that is all gone ended, like every log of an exactly-once source, in the mark that ends a transaction. */
    private boolean isEmptyBehind(OffsetDocument position) {
        return position.clear() + 1 == start && start == end;
    }

    Broken gap(TopicPartition partition, OffsetDocument position) {
        return new Broken(
                "TWP-LOG-GAP: records of %s are gone from the log that the sink has not applied: it has applied %s, and the log begins at offset %d."
                                .formatted(partition, upTo(position), start)
                        + WAY_ON.formatted("the log's beginning"));
    }

    static Broken beyondTheEnd(TopicPartition partition, OffsetDocument position, String log) {
        return new Broken(
                "TWP-LOG-END: the log of %s is shorter than what the sink has applied: it has applied %s, and %s."
                                .formatted(partition, upTo(position), log)
                        + WAY_ON.formatted("the log's end"));
    }

    private static String upTo(OffsetDocument position) {
        String since = position.lastAtMs() == null
                ? ""
                : ", to what came in at "
                        + Instant.ofEpochMilli(position.lastAtMs()).truncatedTo(ChronoUnit.SECONDS);
        return "up to offset %d%s".formatted(position.offset(), since);
    }
}
