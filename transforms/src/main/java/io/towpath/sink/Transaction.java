package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.TransactionOptions;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/** Applies records and advances their partitions' offsets, both or neither. */
record Transaction(
        MongoClient client,
        ClientSession session,
        TransactionOptions options,
        Offsets offsets,
        DeadLetters deadLetters,
        SinkMetrics metrics) {
    private static final int COMMITS = 2; // if the result is still unknown, the offsets show it

    /**
     * One attempt.
     *
     * @param records all of this part of the batch, including refused ones
     * @param plan of the writes of those that are not refused
     */
    Outcome attempt(List<SinkRecord> records, WritePlan plan) {
        List<List<Waves.Bulk>> waves = plan.waves(records);
        try {
            long began = System.nanoTime();
            session.startTransaction(options);
            SinkMetrics.WriteCounts counts = new SinkMetrics.WriteCounts();
            List<Write> foundNone = new ArrayList<>();
            for (List<Waves.Bulk> wave : waves) {
                for (Waves.Bulk bulk : wave) {
                    WriteCommand.Result result = new WriteCommand(
                                    client, session, bulk, plan.suspects(), plan.looksForMissing())
                            .run(bulk.writes());
                    if (!result.missed().isEmpty()) return new Outcome.Missed(result.missed());
                    if (result.refusal().isPresent())
                        return refused(result.refusal().get(), written(waves));
                    List<Write> unexpected = result.foundNone().stream()
                            .filter(write -> !write.rowFollows())
                            .toList();
                    int expected = result.foundNone().size() - unexpected.size();
                    counts = counts.plus(bulk, result.documents() + expected);
                    foundNone.addAll(unexpected);
                }
            }
            Map<TopicPartition, Offsets.End> ends = ends(records);
            // last, so that the next owner rarely waits for this
            if (!offsets.advance(session, ends)) return new Outcome.Displaced();
            if (!foundNone.isEmpty()) plan.foundNone(lasting(foundNone, waves));
            int refused = deadLetters.report(records);
            long openNs = System.nanoTime() - began;
            commit();
            long ns = System.nanoTime() - began;
            offsets.advanced(ends);
            ends.forEach((partition, end) -> deadLetters.passed(partition, end.offset()));
            metrics.applied(records, waves.size(), refused, counts, ns);
            return new Outcome.Applied(openNs);
        } catch (LogBounds.Broken error) {
            throw error;
        } catch (Unanswered error) {
            return new Outcome.Failed(Verdict.TRANSIENT, written(waves), error);
        } catch (RuntimeException error) {
            return failed(error, written(waves));
        } finally {
            abort();
        }
    }

    /** Those of these updates whose documents no other write of the waves makes, or deletes as the source did. */
    static List<Write> lasting(List<Write> foundNone, List<List<Waves.Bulk>> waves) {
        Set<Write.DocumentId> others = waves.stream()
                .flatMap(List::stream)
                .flatMap(bulk -> bulk.writes().stream())
                .filter(write -> !write.isUpdate())
                .map(Write::document)
                .collect(Collectors.toSet());
        return foundNone.stream()
                .filter(write -> !others.contains(write.document()))
                .toList();
    }

    /** How many records the waves write, some of them by several writes. */
    private static int written(List<List<Waves.Bulk>> waves) {
        Set<SinkRecord> records = Collections.newSetFromMap(new IdentityHashMap<>());
        waves.forEach(wave -> wave.forEach(bulk -> bulk.writes().forEach(write -> records.addAll(write.records()))));
        return records.size();
    }

    private void commit() {
        for (int tries = 1; ; tries++) {
            try {
                session.commitTransaction();
                return;
            } catch (MongoException error) {
                boolean unknown = error.hasErrorLabel(MongoException.UNKNOWN_TRANSACTION_COMMIT_RESULT_LABEL);
                if (!unknown || tries == COMMITS) throw error;
            }
        }
    }

    /** Ends an open transaction; the server does so itself when it cannot be reached. */
    void abort() {
        if (!session.hasActiveTransaction()) return;
        try {
            session.abortTransaction();
        } catch (MongoException | IllegalStateException error) {
            // the next transaction of this session ends it too
        }
    }

    private static Outcome refused(WriteCommand.Refusal refusal, int records) {
        Verdict verdict = Verdict.of(refusal);
        if (verdict == Verdict.REFUSED || verdict == Verdict.PRESENT)
            return new Outcome.Refused(refusal.write(), verdict, refusal.code(), refusal.reason());
        return new Outcome.Failed(verdict, records, new MongoException(refusal.code(), refusal.reason()));
    }

    private static Outcome failed(RuntimeException error, int records) {
        return new Outcome.Failed(Verdict.of(error), records, error);
    }

    /** Where the partitions of these records, each in its order, are afterwards. */
    static Map<TopicPartition, Offsets.End> ends(List<SinkRecord> records) {
        Map<TopicPartition, Offsets.End> ends = new HashMap<>();
        for (int i = 0; i < records.size(); i++) {
            SinkRecord record = records.get(i);
            if (i + 1 < records.size() && Records.areOfOnePartition(record, records.get(i + 1))) continue;
            ends.put(Records.partition(record), new Offsets.End(record.kafkaOffset() + 1, record.timestamp()));
        }
        return ends;
    }

    /** The outcome of one attempt to apply records in a transaction. */
    sealed interface Outcome {
        /**
         * Committed.
         *
         * @param openNs how long the transaction was open until the server was asked to commit
         */
        record Applied(long openNs) implements Outcome {}

        /** Nothing is written, as the destination refuses one of the writes. */
        record Refused(Write write, Verdict verdict, int code, String reason) implements Outcome {}

        /** Nothing is written, as at least one of these writes found its document, and not what it needs in it. */
        record Missed(List<Write> writes) implements Outcome {}

        /** Nothing is written, or it is unknown whether all is: the offsets will show. */
        record Failed(Verdict verdict, int records, RuntimeException error) implements Outcome {}

        /** Nothing is written, as the offsets are not where they were expected. */
        record Displaced() implements Outcome {}
    }
}
