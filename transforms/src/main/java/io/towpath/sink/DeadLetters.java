package io.towpath.sink;

import io.towpath.connector.TextHeaders;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * The records that the destination refuses. Each is reported to the dead-letter topic once, before the transaction that passes it commits,
 * and remembered until then.
 */
final class DeadLetters {
    /** This many refusals are allowed whatever the share, as a batch may be small. */
    static final int ALLOWED_AT_LEAST = 10;

    private static final int PATIENCE_S = 20; // well within a transaction's lifetime

    private final ErrantRecordReporter reporter;
    private final double share;
    private final Map<TopicPartition, TreeMap<Long, DeadLetter>> refused = new HashMap<>();
    private double allowed;

    /** @param reporter null when Connect has no dead-letter topic for this connector */
    DeadLetters(ErrantRecordReporter reporter, double percent) {
        this.reporter = reporter;
        this.share = percent / 100;
        this.allowed = share == 0 ? 0 : ALLOWED_AT_LEAST;
    }

    /** Allows the share of refusals for this many more records. What earlier batches did not use counts up to the minimum. */
    void expect(int records) {
        double more = records * share;
        double most = share == 0 ? 0 : Math.max(ALLOWED_AT_LEAST, more);
        allowed = Math.min(allowed + more, most);
    }

    /** Whether Connect has a dead-letter topic for this connector. */
    boolean haveTopic() {
        return reporter != null;
    }

    boolean contains(SinkRecord record) {
        if (refused.isEmpty()) return false;
        TreeMap<Long, DeadLetter> offsets = refused.get(Records.partition(record));
        return offsets != null && offsets.containsKey(record.kafkaOffset());
    }

    /** Throws {@link ConnectException} when there is no dead-letter topic, or when there are too many. */
    void add(SinkRecord record, String namespace, int code, String reason) {
        if (reporter != null && allowed < 1)
            throw refusal(
                    record,
                    namespace,
                    code,
                    reason,
                    "that is more than %s allows, so it may not be about single documents: fix the cause and restart the task, or raise the setting"
                            .formatted(SinkSettings.REFUSED_PERCENT));
        addFurther(record, namespace, code, reason);
        allowed--;
    }

    /** Adds a record that does not count for the share. Throws {@link ConnectException} when there is no dead-letter topic. */
    void addFurther(SinkRecord record, String namespace, int code, String reason) {
        if (reporter == null)
            throw refusal(
                    record,
                    namespace,
                    code,
                    reason,
                    "there is no dead-letter topic: set errors.tolerance=all and errors.deadletterqueue.topic.name");
        remember(new DeadLetter(record, namespace, code, reason, false));
    }

    private static ConnectException refusal(
            SinkRecord record, String namespace, int code, String reason, String consequence) {
        return new ConnectException("the destination refuses %s, offset %d of %s-%d: %s (code %d); %s"
                .formatted(
                        namespace,
                        record.kafkaOffset(),
                        record.topic(),
                        record.kafkaPartition(),
                        reason,
                        code,
                        consequence));
    }

    /** Reports those of these records that are refused and not reported yet. Returns how many are refused. */
    int report(List<SinkRecord> records) {
        if (refused.isEmpty()) return 0;
        List<DeadLetter> letters =
                records.stream().filter(this::contains).map(this::letter).toList();
        List<Future<Void>> reports = letters.stream()
                .filter(letter -> !letter.isReported())
                .map(letter -> reporter.report(letter.toRecord(), new ConnectException(letter.reason())))
                .toList();
        reports.forEach(
                report -> Unanswered.await(report, PATIENCE_S, "the dead-letter topic does not accept a record"));
        letters.forEach(letter -> remember(letter.asReported()));
        return letters.size();
    }

    private DeadLetter letter(SinkRecord record) {
        return refused.get(Records.partition(record)).get(record.kafkaOffset());
    }

    private void remember(DeadLetter letter) {
        refused.computeIfAbsent(Records.partition(letter.record()), unused -> new TreeMap<>())
                .put(letter.record().kafkaOffset(), letter);
    }

    /** The partition is applied up to this offset. */
    void passed(TopicPartition partition, long offset) {
        TreeMap<Long, DeadLetter> offsets = refused.get(partition);
        if (offsets == null) return;
        offsets.headMap(offset).clear();
        if (offsets.isEmpty()) refused.remove(partition);
    }

    void forget(TopicPartition partition) {
        refused.remove(partition);
    }

    /**
     * A record that the destination refuses.
     *
     * @param namespace of its document at the destination; empty when its topic names none
     * @param code the server's error code; 0 when the record never got there
     * @param isReported whether the dead-letter topic has it
     */
    private record DeadLetter(SinkRecord record, String namespace, int code, String reason, boolean isReported) {
        DeadLetter asReported() {
            return new DeadLetter(record, namespace, code, reason, true);
        }

        /** As Connect's reporter gets it: a copy, as Connect would send its own record without our headers. */
        SinkRecord toRecord() {
            SinkRecord record = ChunkedRecords.original(this.record);
            SinkRecord letter =
                    new RecordCopy(record, record.value(), record.headers().duplicate());
            TextHeaders.addDeadLetter(
                    letter.headers(),
                    record.topic(),
                    record.kafkaPartition(),
                    record.kafkaOffset(),
                    namespace,
                    code,
                    reason);
            return letter;
        }
    }
}
