package io.towpath.sink;

import com.mongodb.MongoException;
import io.towpath.net.ServerError;
import io.towpath.record.ContractException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BSONException;

/**
 * Turns records into the waves of a transaction. After each refusal it takes another course until a transaction is applied: the source's
 * order, single writes for a document, or the record as a dead letter.
 */
final class WritePlan {
    private final SinkSettings settings;
    private final Writes writes;
    private final DeadLetters deadLetters;
    private boolean inSourceOrder;
    /** Documents with a folded write that the destination refused: single writes will show which record it refuses. */
    private final Set<Write.DocumentId> unfolded = new HashSet<>();

    WritePlan(SinkSettings settings, Writes writes, DeadLetters deadLetters) {
        this.settings = settings;
        this.writes = writes;
        this.deadLetters = deadLetters;
    }

    List<List<Waves.Bulk>> waves(List<SinkRecord> stretch) {
        List<Writes.RecordedChange> changes = new ArrayList<>(stretch.size());
        for (SinkRecord record : stretch) {
            if (deadLetters.contains(record)) continue;
            try {
                if (!settings.log().skips(record)) changes.add(writes.read(record));
            } catch (DataException | ContractException | BSONException error) {
                deadLetters.add(record, writes.namespace(record), 0, error.getMessage());
            }
        }
        if (settings.fold() && !inSourceOrder) return Waves.of(Folder.fold(changes, unfolded));
        List<Write> single = Folder.alone(changes);
        return inSourceOrder ? List.of(Waves.inOrder(Waves.inSourceOrder(single))) : Waves.of(single);
    }

    void applied() {
        inSourceOrder = false;
        unfolded.clear();
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
        deadLetters.add(write.record(), write.namespace().getFullName(), refused.code(), refused.reason());
        return !isDuplicate;
    }

    /** The only record of the stretch that was to be written becomes a dead letter. */
    void addDeadLetter(List<SinkRecord> stretch, RuntimeException error) {
        SinkRecord record = stretch.stream()
                .filter(each -> !deadLetters.contains(each) && !settings.log().skips(each))
                .findFirst()
                .orElseThrow();
        int code = error instanceof MongoException mongoError ? Math.max(0, mongoError.getCode()) : 0;
        deadLetters.add(record, writes.namespace(record), code, Verdict.message(error));
    }
}
