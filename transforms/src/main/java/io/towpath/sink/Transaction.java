package io.towpath.sink;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoException;
import com.mongodb.TransactionOptions;
import com.mongodb.bulk.BulkWriteError;
import com.mongodb.bulk.BulkWriteResult;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.model.BulkWriteOptions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

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
     * @param records all of this stretch, including refused ones
     * @param waves the writes of those that are not refused
     */
    Outcome attempt(List<SinkRecord> records, List<List<Waves.Bulk>> waves) {
        int written = waves.stream()
                .flatMap(List::stream)
                .flatMap(bulk -> bulk.writes().stream())
                .mapToInt(write -> write.records().size())
                .sum();
        Waves.Bulk current = null;
        try {
            long began = System.nanoTime();
            session.startTransaction(options);
            SinkMetrics.WriteCounts counts = new SinkMetrics.WriteCounts();
            for (List<Waves.Bulk> wave : waves) {
                for (Waves.Bulk bulk : wave) {
                    current = bulk;
                    counts = counts.plus(bulk, write(bulk));
                }
            }
            current = null;
            Map<TopicPartition, Offsets.End> ends = ends(records);
            // last, so that the next owner rarely waits for this
            if (!offsets.advance(session, ends)) return new Outcome.Displaced();
            int refused = deadLetters.report(records);
            long openNs = System.nanoTime() - began;
            commit();
            offsets.advanced(ends);
            ends.forEach((partition, end) -> deadLetters.passed(partition, end.offset()));
            metrics.applied(records, waves.size(), refused, counts);
            return new Outcome.Applied(openNs);
        } catch (MongoBulkWriteException error) {
            if (current == null || error.getWriteErrors().isEmpty()) return failed(error, written);
            BulkWriteError first = error.getWriteErrors().get(0);
            Write write = current.writes().get(first.getIndex());
            Verdict verdict = Verdict.of(first, write.kind());
            if (verdict == Verdict.REFUSED || verdict == Verdict.PRESENT)
                return new Outcome.Refused(write, verdict, first.getCode(), first.getMessage());
            return new Outcome.Failed(verdict, written, error);
        } catch (LogBounds.Broken error) {
            throw error;
        } catch (Unanswered error) {
            return new Outcome.Failed(Verdict.TRANSIENT, written, error);
        } catch (RuntimeException error) {
            return failed(error, written);
        } finally {
            abort();
        }
    }

    /**
     * Always ordered: a refused write ends the transaction, and in an unordered bulk the driver would send the remaining commands into
     * a transaction that no longer exists. Their error, which is transient, would hide which write the destination refuses.
     */
    private BulkWriteResult write(Waves.Bulk bulk) {
        return client.getDatabase(bulk.namespace().getDatabaseName())
                .getCollection(bulk.namespace().getCollectionName(), BsonDocument.class)
                .bulkWrite(
                        session,
                        bulk.writes().stream().map(Write::model).toList(),
                        new BulkWriteOptions().ordered(true));
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

    private static Outcome failed(RuntimeException error, int records) {
        return new Outcome.Failed(Verdict.of(error), records, error);
    }

    private static Map<TopicPartition, Offsets.End> ends(List<SinkRecord> records) {
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

        /** Nothing is written, or it is unknown whether all is: the offsets will show. */
        record Failed(Verdict verdict, int records, RuntimeException error) implements Outcome {}

        /** Nothing is written, as the offsets are not where they were expected. */
        record Displaced() implements Outcome {}
    }
}
