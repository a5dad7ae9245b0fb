package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.WriteModel;
import io.towpath.record.Change;
import io.towpath.support.Fuzz;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.LongStream;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Histories of documents, made at the source change by change and applied folded, batch by batch, at the destination: the same bytes.
 * Each test is 2,000 histories of a dozen writes, cut into batches at random.
 */
class FolderServerTest extends DestinationTest {
    private static final int DOCUMENTS = Fuzz.isNight() ? 2_000 : 500;
    private static final int WRITES = 12;
    private MongoCollection<RawBsonDocument> source;
    private int changes;
    private int splices;
    private int writes;

    @BeforeEach
    void freshSource() {
        source = server.fresh("source");
    }

    static LongStream seeds() {
        return LongStream.range(Fuzz.seed(), Fuzz.seed() + Fuzz.times(1));
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void theSameBytesAsAtTheSource(long seed) {
        Random random = new Random(seed);
        List<BsonDocument> events = ChangeEvents.during(source, () -> write(random.nextLong()));
        ChangeEvents recording = new ChangeEvents(random);
        Map<Write.DocumentId, List<Writes.RecordedChange>> histories = new LinkedHashMap<>();
        for (BsonDocument event : events) {
            Writes.RecordedChange change = recording.recorded(event, collection, changes++);
            if (change.change() instanceof Change.Update update)
                splices += update.splices().size();
            histories
                    .computeIfAbsent(change.document(), unused -> new ArrayList<>())
                    .add(change);
        }
        while (!histories.isEmpty()) {
            List<Writes.RecordedChange> batch = new ArrayList<>();
            for (List<Writes.RecordedChange> history : histories.values()) {
                List<Writes.RecordedChange> some =
                        history.subList(0, Math.min(history.size(), random.nextInt(WRITES + 4)));
                batch.addAll(some);
                some.clear();
            }
            histories.values().removeIf(List::isEmpty);
            apply(Folder.fold(batch, Set.of()));
        }
        assertHolds(source);
        assertTrue(writes < changes * 0.6, "%d writes for %d changes".formatted(writes, changes));
        assertTrue(splices > DOCUMENTS / 10, splices + " splices");
    }

    private void write(long seed) {
        RandomHistory history = new RandomHistory(seed);
        List<WriteModel<RawBsonDocument>> models = new ArrayList<>();
        for (int id = 0; id < DOCUMENTS; id++) models.add(history.first(id));
        Random random = new Random(seed);
        for (int i = DOCUMENTS * WRITES; i > 0; i--) models.add(history.next(random.nextInt(DOCUMENTS)));
        try {
            source.bulkWrite(models, new BulkWriteOptions().ordered(false));
        } catch (MongoBulkWriteException refused) {
            // those have changed nothing
        }
    }

    private void apply(List<Write> folded) {
        writes += folded.size();
        for (List<Waves.Bulk> wave : Waves.of(folded)) {
            for (Waves.Bulk bulk : wave) {
                int matched = collection
                        .withDocumentClass(BsonDocument.class)
                        .bulkWrite(bulk.writes().stream().map(Write::model).toList())
                        .getMatchedCount();
                long spliced =
                        bulk.writes().stream().filter(Write::isConditional).count();
                assertTrue(matched >= spliced, "%d of %d".formatted(matched, spliced));
            }
        }
    }
}
