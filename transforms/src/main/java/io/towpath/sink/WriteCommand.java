package io.towpath.sink;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.bulk.BulkWriteResult;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import io.towpath.record.BsonBytes;
import io.towpath.record.CanonicalKey;
import io.towpath.sink.model.WriteModels;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonType;
import org.bson.BsonValue;
import org.bson.ByteBuf;
import org.bson.RawBsonDocument;
import org.bson.conversions.Bson;
import org.bson.io.BasicOutputBuffer;

/**
 * Sends the writes of a bulk in commands that are made of their bytes. The driver's bulk write has the same effect, but reads each document
 * for its {@code _id} and keeps a result of each write.
 */
final class WriteCommand {
    /** Of the writes in one command; a larger write goes alone. */
    private static final int MOST_BYTES = 2 << 20;
    /** Of a write in a command, which may have as many bytes as a document, and 16 KB more. */
    private static final int LARGEST = 15 << 20;
    /** The server's {@code maxWriteBatchSize}. */
    private static final int MOST_WRITES = 100_000;
    /** Of the writes in one command that are conditional: any of them may be the one that did not find its document. */
    private static final int MOST_CONDITIONAL = 500;
    /** Of the documents in one query. */
    private static final int MOST_LOOKED_UP = 500;
    /** Of a write without its documents, at most. */
    private static final int OVERHEAD = 128;

    /**
     * What the server did.
     *
     * @param documents inserted, matched, upserted or deleted
     * @param refusal of the first write that it refused; it tried none after it
     * @param missed of the last command, the writes of which at least one found its document, and not what it needs in it
     * @param foundNone updates whose documents do not exist
     */
    record Result(int documents, Optional<Refusal> refusal, List<Write> missed, List<Write> foundNone) {
        private boolean isGood() {
            return refusal.isEmpty() && missed.isEmpty();
        }
    }

    /** A write that the server refused, its error code, and its words. */
    record Refusal(Write write, int code, String reason) {}

    private final MongoDatabase database;
    private final ClientSession session;
    private final String collection;
    private final Set<Write.DocumentId> suspects;
    private final boolean looksForMissing;

    /**
     * @param suspects documents whose conditional writes are sent alone, so that it is known which of them miss
     * @param looksForMissing whether it is wanted which updates find no document
     */
    WriteCommand(
            MongoClient client,
            ClientSession session,
            Waves.Bulk bulk,
            Set<Write.DocumentId> suspects,
            boolean looksForMissing) {
        this.suspects = suspects;
        this.looksForMissing = looksForMissing;
        this.database = client.getDatabase(bulk.namespace().getDatabaseName());
        this.session = session;
        this.collection = bulk.namespace().getCollectionName();
    }

    /**
     * Ends with the first write that is refused: it ends the transaction, and what follows would be sent into a transaction that no longer
     * exists. That error, which is transient, would hide which write the destination refuses. Ends with the first command, too, of which a
     * write missed. Throws the driver's exceptions.
     */
    Result run(List<Write> writes) {
        int documents = 0;
        List<Write> foundNone = new ArrayList<>();
        for (int from = 0; from < writes.size(); ) {
            int end = end(writes, from);
            Result result = send(writes.subList(from, end));
            documents += result.documents;
            foundNone.addAll(result.foundNone);
            if (!result.isGood()) return new Result(documents, result.refusal, result.missed, List.of());
            from = end;
        }
        return new Result(documents, Optional.empty(), List.of(), foundNone);
    }

    /** Where the command ends that begins with this write. */
    private int end(List<Write> writes, int from) {
        if (isSuspect(writes.get(from))) return from + 1;
        Write.Kind kind = writes.get(from).kind();
        long bytes = 0;
        int conditional = 0;
        int end = from;
        while (end < writes.size()
                && end - from < MOST_WRITES
                && writes.get(end).kind() == kind) {
            bytes += bytes(writes.get(end));
            if (bytes > MOST_BYTES && end > from) break;
            if (writes.get(end).isConditional() && ++conditional > MOST_CONDITIONAL) break;
            if (isSuspect(writes.get(end))) break;
            end++;
        }
        return end;
    }

    private boolean isSuspect(Write write) {
        return write.isConditional() && suspects.contains(write.document());
    }

    private static long bytes(Write write) {
        return OVERHEAD + write.document().id().length + write.bytes();
    }

    private Result send(List<Write> writes) {
        if (bytes(writes.get(0)) > LARGEST) return sendAlone(writes.get(0));
        BsonDocument reply = database.runCommand(session, command(writes), BsonDocument.class);
        Optional<Refusal> refusal = reply.getArray("writeErrors", new BsonArray()).stream()
                .map(BsonValue::asDocument)
                .findFirst()
                .map(error -> new Refusal(
                        writes.get(error.getNumber("index").intValue()),
                        error.getNumber("code").intValue(),
                        error.getString("errmsg").getValue()));
        int documents = reply.getNumber("n").intValue();
        return refusal.isPresent() ? new Result(documents, refusal, List.of(), List.of()) : result(writes, documents);
    }

    /** Of a command that the server did not refuse. */
    private Result result(List<Write> writes, int documents) {
        int missing = writes.size() - documents;
        boolean isConditional = missing > 0 && writes.stream().anyMatch(Write::isConditional);
        List<Write> updates = missing > 0 && (isConditional || looksForMissing)
                ? writes.stream().filter(Write::isUpdate).toList()
                : List.of();
        List<Write> foundNone = absent(updates, missing);
        if (!isConditional || foundNone.size() >= missing)
            return new Result(documents, Optional.empty(), List.of(), looksForMissing ? foundNone : List.of());
        Set<Write.DocumentId> none = documents(foundNone);
        List<Write> missed = writes.stream()
                .filter(write -> write.isConditional() && !none.contains(write.document()))
                .toList();
        return new Result(documents, Optional.empty(), missed, List.of());
    }

    private static Set<Write.DocumentId> documents(List<Write> writes) {
        return writes.stream().map(Write::document).collect(Collectors.toSet());
    }

    /** Those of these writes whose documents do not exist; looks no further once these are so many. */
    private List<Write> absent(List<Write> writes, int most) {
        List<Write> absent = new ArrayList<>();
        for (int from = 0; from < writes.size() && absent.size() < most; from += MOST_LOOKED_UP) {
            List<Write> some = writes.subList(from, Math.min(from + MOST_LOOKED_UP, writes.size()));
            Set<ByteBuffer> present = present(some);
            some.stream()
                    .filter(write ->
                            !present.contains(ByteBuffer.wrap(write.document().id())))
                    .forEach(absent::add);
        }
        return absent;
    }

    /** The keys of those of the writes' documents that exist. */
    private Set<ByteBuffer> present(List<Write> writes) {
        BsonArray filters = new BsonArray();
        for (Write write : writes)
            filters.add(WriteModels.filter(write.document().id()).orElseThrow());
        RawBsonDocument filter = new RawBsonDocument(BsonBytes.of(new BsonDocument("$or", filters)));
        Set<ByteBuffer> present = new HashSet<>();
        database.getCollection(collection, RawBsonDocument.class)
                .find(session, filter)
                .projection(new BsonDocument("_id", new BsonInt32(1)))
                .forEach(found -> present.add(ByteBuffer.wrap(CanonicalKey.of(BsonBytes.of(found)))));
        return present;
    }

    /** The driver sends a write beside the command, where it may have the full size of a document. */
    private Result sendAlone(Write write) {
        try {
            BulkWriteResult result =
                    database.getCollection(collection, BsonDocument.class).bulkWrite(session, List.of(write.model()));
            int documents = result.getInsertedCount()
                    + result.getMatchedCount()
                    + result.getUpserts().size()
                    + result.getDeletedCount();
            return result(List.of(write), documents);
        } catch (MongoBulkWriteException error) {
            return error.getWriteErrors().stream()
                    .findFirst()
                    .map(first -> new Refusal(write, first.getCode(), first.getMessage()))
                    .map(refusal -> new Result(0, Optional.of(refusal), List.of(), List.of()))
                    .orElseThrow(() -> error);
        }
    }

    private BsonDocument command(List<Write> writes) {
        Write.Kind kind = writes.get(0).kind();
        BasicOutputBuffer out = new BasicOutputBuffer(
                (int) writes.stream().mapToLong(WriteCommand::bytes).sum() + OVERHEAD);
        int start = begin(out);
        out.writeByte(BsonType.STRING.getValue());
        out.writeCString(kind.command());
        out.writeString(collection);
        out.writeByte(BsonType.BOOLEAN.getValue());
        out.writeCString("ordered");
        out.writeByte(1);
        int list = begin(out, BsonType.ARRAY, kind.writes());
        for (int index = 0; index < writes.size(); index++)
            write(out, Integer.toString(index), writes.get(index).model());
        end(out, list);
        end(out, start);
        return new RawBsonDocument(out.getInternalBuffer(), 0, out.getPosition());
    }

    private static void write(BasicOutputBuffer out, String name, WriteModel<BsonDocument> model) {
        if (model instanceof InsertOneModel<BsonDocument> insert) {
            document(out, name, insert.getDocument());
        } else if (model instanceof ReplaceOneModel<BsonDocument> replace) {
            int start = begin(out, BsonType.DOCUMENT, name);
            document(out, "q", replace.getFilter());
            document(out, "u", replace.getReplacement());
            upsert(out, replace.getReplaceOptions().isUpsert());
            end(out, start);
        } else if (model instanceof UpdateOneModel<BsonDocument> update) {
            int start = begin(out, BsonType.DOCUMENT, name);
            document(out, "q", update.getFilter());
            if (update.getUpdate() != null) document(out, "u", update.getUpdate());
            else pipeline(out, update.getUpdatePipeline());
            upsert(out, update.getOptions().isUpsert());
            end(out, start);
        } else if (model instanceof DeleteOneModel<BsonDocument> delete) {
            int start = begin(out, BsonType.DOCUMENT, name);
            document(out, "q", delete.getFilter());
            out.writeByte(BsonType.INT32.getValue());
            out.writeCString("limit");
            out.writeInt32(1);
            end(out, start);
        } else {
            throw new IllegalArgumentException("no write of one document: " + model);
        }
    }

    private static void pipeline(BasicOutputBuffer out, List<? extends Bson> stages) {
        int start = begin(out, BsonType.ARRAY, "u");
        for (int index = 0; index < stages.size(); index++) document(out, Integer.toString(index), stages.get(index));
        end(out, start);
    }

    private static void upsert(BasicOutputBuffer out, boolean isUpsert) {
        out.writeByte(BsonType.BOOLEAN.getValue());
        out.writeCString("upsert");
        out.writeByte(isUpsert ? 1 : 0);
    }

    private static void document(BasicOutputBuffer out, String name, Bson document) {
        out.writeByte(BsonType.DOCUMENT.getValue());
        out.writeCString(name);
        ByteBuf bytes = ((RawBsonDocument) document).getByteBuffer();
        out.writeBytes(bytes.array(), bytes.position(), bytes.remaining());
    }

    private static int begin(BasicOutputBuffer out, BsonType type, String name) {
        out.writeByte(type.getValue());
        out.writeCString(name);
        return begin(out);
    }

    /** Returns where the document starts; {@link #end} writes its length there. */
    private static int begin(BasicOutputBuffer out) {
        int start = out.getPosition();
        out.writeInt32(0);
        return start;
    }

    private static void end(BasicOutputBuffer out, int start) {
        out.writeByte(0);
        out.writeInt32(start, out.getPosition() - start);
    }
}
