package io.towpath.sink;

import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import io.towpath.net.ServerError;
import io.towpath.record.ContractException;
import io.towpath.sink.ddl.Barrier;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BSONException;

/**
 * Turns records into the waves of a transaction. After each refusal it takes another course until a transaction is applied: the source's
 * order, single writes for a document, or the record as a dead letter.
 */
final class WritePlan {
    static final String GONE =
            "TWP-DOCUMENT-GONE: an update was not applied, because its document is not at the destination: someone else "
                    + "removed it there, or the log does not hold its beginning; `towpath repair PIPELINE --dead-letters` re-reads the document, and "
                    + "until then its later updates are only counted";

    private final SinkSettings settings;
    private final Writes writes;
    private final DeadLetters deadLetters;
    private final SinkMetrics metrics;
    private boolean inSourceOrder;
    /** Documents with a folded write that the destination refused: single writes will show which record it refuses. */
    private final Set<Write.DocumentId> unfolded = new HashSet<>();
    /** Documents of which a write may have missed. */
    private final Set<Write.DocumentId> suspects = new HashSet<>();

    private final StaleDocuments stale = new StaleDocuments();

    WritePlan(SinkSettings settings, Writes writes, DeadLetters deadLetters, SinkMetrics metrics) {
        this.settings = settings;
        this.writes = writes;
        this.deadLetters = deadLetters;
        this.metrics = metrics;
    }

    List<List<Waves.Bulk>> waves(List<SinkRecord> part) {
        List<Writes.RecordedChange> changes = new ArrayList<>(part.size());
        for (SinkRecord record : part) {
            if (Barrier.is(record) || ChunkedRecords.isChunk(record)) continue;
            boolean isDeadLetter = deadLetters.contains(record);
            try {
                if (settings.log().skips(record)) continue;
                Writes.RecordedChange change = writes.read(record);
                // each time, in its turn: an earlier record of this part may have the array whole
                if (isDeadLetter) stale.add(change);
                else
                    stale.arrayIn(change)
                            .ifPresentOrElse(path -> addFurtherMiss(change, path), () -> changes.add(change));
            } catch (DataException | ContractException | BSONException error) {
                if (Barrier.claims(record)) throw unreadable(record, error);
                if (isDeadLetter || isSuperseded(record)) continue;
                deadLetters.add(record, writes.namespace(record), 0, error.getMessage());
            }
        }
        if (settings.fold() && !inSourceOrder) {
            List<Write> folded = Folder.fold(changes, unfolded);
            if (unfolded.isEmpty() || !Waves.mayMeet(folded)) return Waves.of(folded);
        }
        List<Write> single = Folder.alone(changes);
        if (inSourceOrder) return List.of(Waves.inOrder(Waves.inSourceOrder(single)));
        return Waves.mayMeet(single) ? List.of(Waves.inOrder(single)) : Waves.of(single);
    }

    /** A change of an array that a dead letter was about. It says nothing new, and so does not count as another refusal. */
    private void addFurtherMiss(Writes.RecordedChange change, String path) {
        String reason =
                "an earlier change of its array '%s' is a dead letter, so the array is not as it was at the source";
        deadLetters.addFurther(change.record(), writes.namespace(change.record()), 0, reason.formatted(path));
        stale.add(change);
        metrics.spliceMissed();
    }

    /** What follows a schema change must not be applied without it, so its record is no dead letter. */
    private static ConnectException unreadable(SinkRecord record, RuntimeException error) {
        return Barrier.unreadable(record.topic(), record.kafkaPartition(), record.kafkaOffset(), error);
    }

    void applied() {
        inSourceOrder = false;
        unfolded.clear();
        suspects.clear();
    }

    /** The log is not continued where it ended. */
    void startOver() {
        stale.clear();
    }

    /** A schema change has been made: the documents of this namespace are others. */
    void forget(MongoNamespace namespace) {
        stale.forget(namespace);
    }

    /** Documents whose arrays may not be as they were at the source: the next transaction has to show which of them are not. */
    Set<Write.DocumentId> suspects() {
        return suspects;
    }

    /** At least one of these writes found its document, and not what it needs in it. */
    void missed(List<Write> missed) {
        Write write = missed.get(0);
        if (missed.size() > 1 || !suspects.contains(write.document())) {
            missed.forEach(each -> suspects.add(each.document()));
        } else if (write.isFolded()) {
            unfolded.add(write.document());
        } else {
            String lengths = write.lengths().entrySet().stream()
                    .map(array ->
                            "its array '%s' does not have the %d elements".formatted(array.getKey(), array.getValue()))
                    .collect(Collectors.joining(" or "));
            String found = lengths + " at the destination that it had at the source: ";
            String twice = write.isPipeline() ? ", or a field on the way to it is in the document twice" : "";
            if (mayFollowGap(write.record()))
                deadLetters.addFurther(
                        write.record(),
                        writes.namespace(write.record()),
                        0,
                        found + "the compacted log may lack changes before this one; the whole document follows");
            else
                addDeadLetter(
                        write.record(),
                        0,
                        found + "someone else has written to it" + twice + "; "
                                + "`towpath repair PIPELINE --dead-letters` re-reads the document");
            metrics.spliceMissed();
        }
    }

    /**
     * These updates found no document, and the transaction commits all the same. Each document becomes one dead letter, until a record has it
     * whole: that repairs it, whatever its other updates were. None of them counts for the share that may be refused, because a task that
     * stopped at them could not get past them.
     */
    void foundNone(List<Write> updates) {
        for (Write write : updates) {
            SinkRecord record = write.record();
            if (mayFollowGap(record) || !stale.addWhole(write.document())) continue;
            deadLetters.addFurther(record, writes.namespace(record), 0, GONE);
        }
    }

    /** Whether an update that finds no document shows that the destination lost it. */
    boolean looksForMissing() {
        return settings.log().isWhole() && deadLetters.haveTopic();
    }

    /** Whether the cleaner may have removed changes before this one: that is no refusal, and each update is followed by its document. */
    private boolean mayFollowGap(SinkRecord record) {
        return settings.log().isCompacted()
                && record.timestamp() != null
                && System.currentTimeMillis() - record.timestamp()
                        > settings.log().lagMs();
    }

    /** Whether the cleaner has removed chunks of this record: it does so only if a later record of the document follows. */
    private boolean isSuperseded(SinkRecord record) {
        return ChunkedRecords.isMissing(record) && mayFollowGap(record);
    }

    /** Returns whether the next transaction should be smaller. */
    boolean refused(Transaction.Outcome.Refused refused) {
        Write write = refused.write();
        boolean isDuplicate = refused.code() == ServerError.DuplicateKey.code();
        if (refused.verdict() == Verdict.PRESENT) {
            writes.markPresent(write.record());
            return false;
        }
        if (isDuplicate && !inSourceOrder) {
            inSourceOrder = true; // by class, a write that takes a unique value may precede the one that frees it
            return false;
        }
        if (write.isFolded()) {
            unfolded.add(write.document());
            return true;
        }
        addDeadLetter(write.record(), refused.code(), refused.reason());
        return !isDuplicate;
    }

    /** The only record of this part of the batch that was to be written becomes a dead letter. */
    void addDeadLetter(List<SinkRecord> part, RuntimeException error) {
        SinkRecord record = part.stream()
                .filter(each -> !deadLetters.contains(each)
                        && !Barrier.is(each)
                        && !ChunkedRecords.isChunk(each)
                        && !settings.log().skips(each))
                .findFirst()
                .orElseThrow();
        int code = error instanceof MongoException mongoError ? Math.max(0, mongoError.getCode()) : 0;
        addDeadLetter(record, code, Verdict.message(error));
    }

    private void addDeadLetter(SinkRecord record, int code, String reason) {
        deadLetters.add(record, writes.namespace(record), code, reason);
    }
}
