package io.towpath.transform;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.ClusterTime;
import io.towpath.record.Truncation;
import io.towpath.source.ChangeCarrier;
import io.towpath.source.MarkedBytes;
import io.towpath.source.RawDocuments;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/** One record of Debezium's that tells of a document. */
final class DebeziumEvent {
    private final Map<String, ?> offset;
    private final Struct envelope;
    private final Struct source;

    private DebeziumEvent(SourceRecord record, Struct envelope) {
        this.offset = record.sourceOffset();
        this.envelope = envelope;
        this.source = envelope.getStruct("source");
    }

    /** Empty for a record that tells of no document: a heartbeat, a notification, a transaction's end. */
    static Optional<DebeziumEvent> in(SourceRecord record) {
        boolean isEnvelope = record.value() instanceof Struct value
                && value.schema().field("op") != null
                && value.schema().field("source") != null
                && value.getStruct("source").schema().field("collection") != null;
        return isEnvelope ? Optional.of(new DebeziumEvent(record, (Struct) record.value())) : Optional.empty();
    }

    /** {@code db.collection}, as the source has it. */
    String namespace() {
        return source.getString("db") + "." + source.getString("collection");
    }

    /** {@code r}, {@code c}, {@code u} or {@code d}. */
    String operation() {
        return envelope.getString("op");
    }

    ClusterTime time() {
        return EventTime.of(offset)
                .orElseThrow(() -> new DataException("%s: a record of Debezium's without a cluster time; its offset: %s"
                        .formatted(namespace(), offset)));
    }

    /** The source's wall clock, ms since the epoch: of the change, or of the read. */
    long atMs() {
        return operation().equals("r") ? envelope.getInt64("ts_ms") : source.getInt64("ts_ms");
    }

    /** The whole document, if the record has it. */
    Optional<byte[]> document() {
        return Optional.ofNullable(envelope.getString("after")).map(this::bytes);
    }

    /** Whether an {@code u} put a whole document in place of another. */
    boolean isReplace() {
        return envelope.getString("before") == null && envelope.getStruct("updateDescription") == null;
    }

    /** Whether the server sent nothing but the key. */
    boolean isOversized() {
        return operation().equals("u")
                && envelope.getString("before") != null
                && carrier().containsKey(ChangeCarrier.OVERSIZED);
    }

    /** {@code {_id: …}} of an update or a delete; in a sharded collection with the shard key. */
    byte[] documentKey() {
        return BsonBytes.of(carrier().getDocument(ChangeCarrier.KEY));
    }

    Change.Update update() {
        BsonDocument description = carrier().getDocument(ChangeCarrier.DESCRIPTION);
        List<String> unset = strings(description.getArray("removedFields", new BsonArray()));
        List<Truncation> truncations = description.getArray("truncatedArrays", new BsonArray()).stream()
                .map(BsonValue::asDocument)
                .map(cut -> new Truncation(
                        cut.getString("field").getValue(),
                        cut.getInt32("newSize").getValue()))
                .toList();
        return new Change.Update(description.getDocument("updatedFields", new BsonDocument()), unset, truncations);
    }

    private RawBsonDocument carrier() {
        String carried = envelope.getString("before");
        RawBsonDocument carrier = carried == null ? null : new RawBsonDocument(bytes(carried));
        if (carrier == null || !carrier.containsKey(ChangeCarrier.KEY)) {
            throw new DataException(
                    "%s: an update or a delete without the bytes of its key; set cursor.pipeline of the source connector to %s"
                            .formatted(namespace(), ChangeCarrier.PIPELINE));
        }
        return carrier;
    }

    private byte[] bytes(String text) {
        return MarkedBytes.unmark(text)
                .orElseThrow(() -> new DataException(
                        "%s: the document came as JSON, which loses types; set mongodb.authentication.class of the source connector to %s"
                                .formatted(namespace(), RawDocuments.class.getName())));
    }

    private static List<String> strings(BsonArray array) {
        return array.stream().map(BsonValue::asString).map(BsonString::getValue).toList();
    }
}
