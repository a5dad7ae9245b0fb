package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * The records that the destination refuses. They are remembered until the transaction that goes past them is committed, and told to
 * the dead-letter topic before that, once each.
 */
final class DeadLetters {
    /** So many refusals are allowed whatever the share, as a batch may be small. */
    static final int ALLOWED_AT_LEAST = 10;

    private static final int ANSWER_S = 20; // well within a transaction's life

    private static final class Refusal {
        final String namespace;
        final int code;
        final String reason;
        boolean told;

        Refusal(String namespace, int code, String reason) {
            this.namespace = namespace;
            this.code = code;
            this.reason = reason;
        }
    }

    private final ErrantRecordReporter reporter;
    private final double share;
    private final Map<TopicPartition, TreeMap<Long, Refusal>> refused = new HashMap<>();
    private double allowed;

    /** @param reporter null when Connect has no dead-letter topic for this connector */
    DeadLetters(ErrantRecordReporter reporter, double percent) {
        this.reporter = reporter;
        this.share = percent / 100;
        this.allowed = share == 0 ? 0 : ALLOWED_AT_LEAST;
    }

    /** So many records more may hold so many refusals more. What earlier batches left over counts up to the least that is allowed. */
    void expect(int records) {
        double more = records * share;
        double most = share == 0 ? 0 : Math.max(ALLOWED_AT_LEAST, more);
        allowed = Math.min(allowed + more, most);
    }

    boolean contains(SinkRecord record) {
        TreeMap<Long, Refusal> offsets = refused.get(partition(record));
        return offsets != null && offsets.containsKey(record.kafkaOffset());
    }

    /** Throws {@link ConnectException} when there is nowhere to put it, or when there are too many. */
    void setAside(SinkRecord record, String namespace, int code, String reason) {
        String what = "the destination refuses %s, offset %d of %s-%d: %s (code %d)"
                .formatted(namespace, record.kafkaOffset(), record.topic(), record.kafkaPartition(), reason, code);
        if (reporter == null)
            throw new ConnectException(
                    what
                            + "; there is no topic for dead letters: set errors.tolerance=all and errors.deadletterqueue.topic.name");
        if (allowed < 1)
            throw new ConnectException(what
                    + "; that is more than %s allows, so it may not be about single documents: mend the cause and restart the task, or raise the setting"
                            .formatted(SinkSettings.REFUSED_PERCENT));
        allowed--;
        refused.computeIfAbsent(partition(record), unused -> new TreeMap<>())
                .put(record.kafkaOffset(), new Refusal(namespace, code, reason));
    }

    /** Tell the dead-letter topic those of these records that it does not know yet. Returns how many records are refused. */
    int tell(List<SinkRecord> records) {
        List<Refusal> refusals = new ArrayList<>();
        List<Future<Void>> answers = new ArrayList<>();
        for (SinkRecord record : records) {
            if (!contains(record)) continue;
            Refusal refusal = refused.get(partition(record)).get(record.kafkaOffset());
            refusals.add(refusal);
            if (!refusal.told)
                answers.add(reporter.report(letter(record, refusal), new ConnectException(refusal.reason)));
        }
        await(answers);
        refusals.forEach(refusal -> refusal.told = true);
        return refusals.size();
    }

    /** The partition is applied up to this offset. */
    void passed(TopicPartition partition, long offset) {
        TreeMap<Long, Refusal> offsets = refused.get(partition);
        if (offsets != null) offsets.headMap(offset).clear();
    }

    void forget(TopicPartition partition) {
        refused.remove(partition);
    }

    /** A record of our own, as Connect sends its own records as they came, without what was added. */
    private static SinkRecord letter(SinkRecord record, Refusal refusal) {
        SinkRecord letter = new SinkRecord(
                record.topic(),
                record.kafkaPartition(),
                record.keySchema(),
                record.key(),
                record.valueSchema(),
                record.value(),
                record.kafkaOffset(),
                record.timestamp(),
                record.timestampType(),
                record.headers().duplicate());
        add(letter, "topic", record.topic());
        add(letter, "partition", Integer.toString(record.kafkaPartition()));
        add(letter, "offset", Long.toString(record.kafkaOffset()));
        add(letter, "namespace", refusal.namespace);
        add(letter, "code", Integer.toString(refusal.code));
        add(letter, "reason", refusal.reason);
        return letter;
    }

    private static void add(SinkRecord letter, String name, String text) {
        letter.headers().add(name, text.getBytes(UTF_8), Schema.BYTES_SCHEMA);
    }

    private static void await(List<Future<Void>> answers) {
        try {
            for (Future<Void> answer : answers) answer.get(ANSWER_S, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            throw new Unanswered(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new Unanswered(error);
        }
    }

    private static TopicPartition partition(SinkRecord record) {
        return new TopicPartition(record.topic(), record.kafkaPartition());
    }

    /** The dead-letter topic did not take a record. */
    static final class Unanswered extends RuntimeException {
        private static final long serialVersionUID = 1;

        private Unanswered(Exception cause) {
            super("the topic for dead letters does not take a record: " + cause, cause);
        }
    }
}
