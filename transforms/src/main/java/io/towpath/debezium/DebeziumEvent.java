package io.towpath.debezium;

import io.towpath.record.ClusterTime;
import io.towpath.record.WholeBson;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * A record of Debezium's about a document. A method whose part of the record is absent or malformed throws {@link DataException},
 * {@link io.towpath.record.ContractException} or the driver's {@link org.bson.BSONException}.
 */
public final class DebeziumEvent {
    private final Map<String, ?> offset;
    private final Struct envelope;
    private final Struct source;
    private UpdateCarrier carrier;

    private DebeziumEvent(Map<String, ?> offset, Struct envelope, Struct source) {
        this.offset = offset;
        this.envelope = envelope;
        this.source = source;
    }

    /** Empty for a record about no document: a heartbeat, a notification, a transaction's end. */
    static Optional<DebeziumEvent> in(SourceRecord record) {
        boolean isEnvelope = record.value() instanceof Struct value
                && value.schema().field("op") != null
                && value.schema().field("source") != null;
        if (!isEnvelope) return Optional.empty();
        Struct envelope = (Struct) record.value();
        Struct source = part(envelope, "source", Struct.class)
                .orElseThrow(() -> new DataException("Debezium's record does not name its source"));
        return source.schema().field("collection") == null
                ? Optional.empty()
                : Optional.of(new DebeziumEvent(record.sourceOffset(), envelope, source));
    }

    /** {@code db.collection}, as the source has it. */
    String namespace() {
        return required(source, "db", String.class) + "." + required(source, "collection", String.class);
    }

    /** For error messages; empty when the record has none. */
    Optional<String> place() {
        try {
            return Optional.of(namespace());
        } catch (DataException absent) {
            return Optional.empty();
        }
    }

    /** {@code r}, {@code c}, {@code u} or {@code d}. */
    String operation() {
        return required(envelope, "op", String.class);
    }

    ClusterTime time() {
        return EventTime.of(offset)
                .orElseThrow(() -> new DataException(
                        "a record of Debezium's without a cluster time; its offset: %s".formatted(offset)));
    }

    /** The source's wall clock, ms since the epoch: of the change, or of the read. */
    long atMs() {
        return required(operation().equals("r") ? envelope : source, "ts_ms", Long.class);
    }

    /** The whole document, if the record has it. */
    Optional<byte[]> document() {
        return part(envelope, "after", String.class).map(this::bytes);
    }

    /** Whether a {@code u} replaced the whole document. */
    boolean isReplace() {
        return part(envelope, "before", String.class).isEmpty()
                && part(envelope, "updateDescription", Struct.class).isEmpty();
    }

    /** Whether it is of a transaction, whose events share their cluster time. */
    boolean isOfTransaction() {
        return part(source, "txnNumber", Long.class).isPresent();
    }

    /** Whether the server sent only the key, because the event is too large. */
    boolean isOversized() {
        return carrier().isOversized();
    }

    /** Whether the document has to be read in its place: it is too large, or names of fields in its paths hold dots. */
    public boolean needsDocument() {
        return operation().equals("u")
                && envelope.getString("before") != null
                && (isOversized() || carrier().hasDottedName());
    }

    /** {@code {_id: …}} of an update or a delete; in a sharded collection with the shard key. */
    byte[] documentKey() {
        return carrier().key();
    }

    /** The record's value of an update; empty when that changes nothing. */
    Optional<byte[]> update() {
        return carrier().update();
    }

    /** What {@link CursorPipeline} put into {@code fullDocumentBeforeChange}. */
    private UpdateCarrier carrier() {
        if (carrier == null)
            carrier = part(envelope, "before", String.class)
                    .map(this::bytes)
                    .flatMap(UpdateCarrier::of)
                    .orElseThrow(() -> new DataException(
                            "an update or a delete without the bytes of its key; set cursor.pipeline of the source connector to %s"
                                    .formatted(CursorPipeline.PIPELINE)));
        return carrier;
    }

    private byte[] bytes(String text) {
        byte[] bytes = BsonText.document(text)
                .orElseThrow(() -> new DataException(
                        "the document came as JSON, which loses types; set mongodb.authentication.class of the source connector to %s"
                                .formatted(RawDocuments.class.getName())));
        WholeBson.require(bytes);
        return bytes;
    }

    private static <T> T required(Struct struct, String name, Class<T> type) {
        return part(struct, name, type)
                .orElseThrow(() -> new DataException("Debezium's record has no %s".formatted(name)));
    }

    /** Empty when the schema has no such field, or it is null. */
    private static <T> Optional<T> part(Struct struct, String name, Class<T> type) {
        Field field = struct.schema().field(name);
        Object value = field == null ? null : struct.get(field);
        if (value == null) return Optional.empty();
        if (type.isInstance(value)) return Optional.of(type.cast(value));
        throw new DataException("%s in Debezium's record is a %s, and should be a %s"
                .formatted(name, value.getClass().getSimpleName(), type.getSimpleName()));
    }
}
