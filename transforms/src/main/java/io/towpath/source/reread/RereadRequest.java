package io.towpath.source;

import io.towpath.record.BsonElements;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.WholeBson;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BsonInvalidOperationException;
import org.bson.BsonSerializationException;
import org.bson.RawBsonDocument;

/**
 * A request to read documents again.
 *
 * @param offset of its record in the topic of requests
 * @param keys of the documents, each once, in the order of their {@code _id}s
 * @param closes the resnapshot of which this is the end, after all of its requests; empty for every other request
 */
record ReadRequest(long offset, String namespace, List<byte[]> keys, String closes) {
    ReadRequest(long offset, String namespace, List<byte[]> keys) {
        this(offset, namespace, keys, "");
    }

    private static final byte[] ID = {'_', 'i', 'd'};
    /** The server stores none of these as an {@code _id}; asked for a regex it gives what matches. */
    private static final Set<Byte> NO_IDS = Set.of((byte) 0x04, (byte) 0x06, (byte) 0x0B);

    /** From {@code {resnapshot: "…"}}; empty for anything else. */
    static Optional<ReadRequest> closing(long offset, byte[] value) {
        try {
            RawBsonDocument found = new RawBsonDocument(value == null ? new byte[0] : value);
            if (!found.containsKey("resnapshot")) return Optional.empty();
            return Optional.of(new ReadRequest(
                    offset, "", List.of(), found.getString("resnapshot").getValue()));
        } catch (BsonSerializationException | BsonInvalidOperationException | IllegalArgumentException other) {
            return Optional.empty();
        }
    }

    /** From {@code {namespace: "db.collection", ids: [_id, …]}}. Throws {@link DataException} on anything else. */
    static ReadRequest of(long offset, byte[] value) {
        try {
            if (value == null) throw new DataException("it is empty");
            WholeBson.require(value);
            String namespace = new RawBsonDocument(value).getString("namespace").getValue();
            TreeSet<byte[]> keys = new TreeSet<>(BsonOrder::compare);
            BsonElements fields = new BsonElements(value, 0);
            while (fields.next()) {
                if (!fields.nameIs(new byte[] {'i', 'd', 's'}) || fields.type() != BsonElements.ARRAY) continue;
                BsonElements ids = new BsonElements(value, fields.valueStart());
                while (ids.next()) {
                    if (NO_IDS.contains(ids.type()))
                        throw new DataException("no _id is an array, a regex or undefined");
                    keys.add(CanonicalKey.of(idDocument(value, ids)));
                }
            }
            if (keys.isEmpty()) throw new DataException("it names no ids");
            return new ReadRequest(offset, namespace, new ArrayList<>(keys));
        } catch (BsonSerializationException | BsonInvalidOperationException | DataException error) {
            throw new DataException(
                    "request %d is not {namespace: \"db.collection\", ids: [_id, …]}: %s"
                            .formatted(offset, error.getMessage()),
                    error);
        }
    }

    private static byte[] idDocument(byte[] value, BsonElements id) {
        int length = id.valueEnd() - id.valueStart();
        int size = Integer.BYTES + 1 + ID.length + 1 + length + 1;
        return ByteBuffer.allocate(size)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putInt(size)
                .put(id.type())
                .put(ID)
                .put((byte) 0)
                .put(value, id.valueStart(), length)
                .put((byte) 0)
                .array();
    }
}
