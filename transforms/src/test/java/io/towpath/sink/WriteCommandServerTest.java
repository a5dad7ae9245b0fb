package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.ClientSession;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.WriteModel;
import io.towpath.record.CanonicalKey;
import io.towpath.sink.model.WriteModels;
import io.towpath.support.Raw;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Bulks that do not fit into one command, and writes that do not fit into any. */
class WriteCommandServerTest extends DestinationTest {
    private static final int LARGEST = 16 << 20;

    @Test
    void aBulkOfMoreBytesThanACommandTakesIsSeveralCommands() {
        List<Write> inserts = new ArrayList<>();
        for (int id = 0; id < 4; id++) inserts.add(insert(document(id, 3 << 20)));
        assertEquals(4, run(inserts).documents());
        for (int id = 0; id < 4; id++) assertStored(document(id, 3 << 20));
    }

    @Test
    void theLargestDocumentsAreWritten() {
        byte[] largest = document(1, LARGEST);
        assertEquals(1, run(List.of(insert(largest))).documents());
        assertStored(largest);
        byte[] other = largest.clone();
        other[LARGEST / 2] = 'y';
        assertEquals(
                1,
                run(List.of(write(Write.Kind.CHANGE, WriteModels.replace(other), other)))
                        .documents());
        assertStored(other);
        byte[] third = document(3, LARGEST);
        assertEquals(
                1,
                run(List.of(write(Write.Kind.CHANGE, WriteModels.replace(third), third)))
                        .documents());
        assertStored(third);
    }

    @Test
    @Tag("nightly")
    void moreWritesThanACommandTakesAreSeveralCommands() {
        List<Write> inserts = new ArrayList<>();
        List<Write> deletes = new ArrayList<>();
        for (int id = 0; id < 100_005; id++) {
            byte[] document = Raw.document(Raw.int32("_id", id));
            inserts.add(insert(document));
            WriteModel<BsonDocument> delete =
                    new DeleteOneModel<>(WriteModels.filter(document).orElseThrow());
            deletes.add(write(Write.Kind.DELETE, delete, document));
        }
        assertEquals(100_005, run(inserts).documents());
        assertEquals(100_005, run(deletes).documents());
        assertEquals(0, collection.countDocuments());
    }

    @Test
    void theRefusedWriteIsNamedInALaterCommandToo() {
        server.run("{insert: '%s', documents: [{_id: 3}]}"
                .formatted(collection.getNamespace().getCollectionName()));
        List<Write> inserts = new ArrayList<>();
        for (int id = 0; id < 4; id++) inserts.add(insert(document(id, 3 << 20)));
        WriteCommand.Refusal refusal = run(inserts).refusal().orElseThrow();
        assertEquals(inserts.get(3), refusal.write());
        assertEquals(Verdict.PRESENT, Verdict.of(refusal));
    }

    @Test
    void aRefusalOfALargeWriteIsNamed() {
        server.run("{insert: '%s', documents: [{_id: 1}]}"
                .formatted(collection.getNamespace().getCollectionName()));
        Write large = insert(document(1, LARGEST));
        WriteCommand.Refusal refusal = run(List.of(large)).refusal().orElseThrow();
        assertEquals(large, refusal.write());
        assertEquals(Verdict.PRESENT, Verdict.of(refusal));
    }

    private WriteCommand.Result run(List<Write> writes) {
        Waves.Bulk bulk = new Waves.Bulk(collection.getNamespace(), writes);
        try (ClientSession session = server.session()) {
            session.startTransaction();
            WriteCommand.Result result = new WriteCommand(server.client(), session, bulk, Set.of(), true).run(writes);
            if (result.refusal().isEmpty()) session.commitTransaction();
            return result;
        }
    }

    private void assertStored(byte[] document) {
        BsonDocument filter = WriteModels.filter(document).orElseThrow();
        RawBsonDocument stored =
                collection.withDocumentClass(RawBsonDocument.class).find(filter).first();
        assertTrue(new RawBsonDocument(document).equals(stored));
    }

    private Write insert(byte[] document) {
        return write(Write.Kind.INSERT, WriteModels.insert(document), document);
    }

    private Write write(Write.Kind kind, WriteModel<BsonDocument> model, byte[] document) {
        Write.DocumentId id = new Write.DocumentId(collection.getNamespace(), CanonicalKey.of(document));
        return new Write(List.of(), id, kind, model, document.length, false);
    }

    /** A document of exactly so many bytes. */
    private static byte[] document(int id, int size) {
        byte[] empty = Raw.document(Raw.int32("_id", id), Raw.string("text", ""));
        return Raw.document(Raw.int32("_id", id), Raw.string("text", "x".repeat(size - empty.length)));
    }
}
