package io.towpath.source.reread;

import com.mongodb.MongoNamespace;
import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import io.towpath.record.BsonOrder;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ContractException;
import io.towpath.record.WholeBson;
import io.towpath.source.copy.DriverKey;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.bson.BsonDocument;
import org.bson.BsonInvalidOperationException;
import org.bson.BsonSerializationException;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;

/**
 * A request to re-read documents.
 *
 * @param offset of its record in the request topic; -1 for none
 * @param keys of the documents, each once, in the order of their {@code _id}s
 * @param closes the resnapshot that this request ends, behind all of its others; empty for every other request
 */
record RereadRequest(long offset, String namespace, List<byte[]> keys, String closes) {
    /** The server stores no {@code _id} of these types, and a query for a regex returns what matches it. */
    private static final Set<Byte> NO_IDS = Set.of((byte) 0x04, (byte) 0x06, (byte) 0x0B);
    /** Of a document. A command may have 16 KB more. */
    private static final int MOST_BYTES = 16 << 20;

    /** Of no record. Throws {@link ConnectException} for an {@code _id} that no driver sends unchanged. */
    static RereadRequest of(String namespace, List<byte[]> keys) {
        for (byte[] key : keys) {
            if (!DriverKey.isExact(key))
                throw new ConnectException(
                        "%s %s changed while it was copied in natural order, and cannot be re-read by its _id, which no driver sends unchanged. Remove the pipeline with its topics, and deploy it with copy_order = \"id\""
                                .formatted(namespace, new RawBsonDocument(key).toJson()));
        }
        return new RereadRequest(
                -1, namespace, keys.stream().sorted(BsonOrder::compare).toList(), "");
    }

    /**
     * From {@code {namespace: "db.collection", ids: [_id, …]}}, or from {@code {resnapshot: "…"}}. Throws {@link DataException} on anything
     * else.
     */
    static RereadRequest of(long offset, byte[] value) {
        try {
            if (value == null) throw new DataException("it is empty");
            WholeBson.require(value);
            RawBsonDocument request = new RawBsonDocument(value);
            if (request.containsKey("resnapshot"))
                return new RereadRequest(
                        offset, "", List.of(), request.getString("resnapshot").getValue());
            String namespace = request.getString("namespace").getValue();
            new MongoNamespace(namespace);
            TreeSet<byte[]> keys = keys(value);
            if (keys.isEmpty()) throw new DataException("it names no ids");
            return new RereadRequest(offset, namespace, new ArrayList<>(keys), "");
        } catch (BsonSerializationException
                | BsonInvalidOperationException
                | IllegalArgumentException
                | ContractException
                | DataException error) {
            throw new DataException(
                    "request %d is not {namespace: \"db.collection\", ids: [_id, …]}: %s"
                            .formatted(offset, error.getMessage()),
                    error);
        }
    }

    private static TreeSet<byte[]> keys(byte[] value) {
        TreeSet<byte[]> keys = new TreeSet<>(BsonOrder::compare);
        BsonElements fields = new BsonElements(value, 0);
        while (fields.next()) {
            if (!fields.nameIs(new byte[] {'i', 'd', 's'}) || fields.type() != BsonElements.ARRAY) continue;
            BsonElements ids = new BsonElements(value, fields.valueStart());
            while (ids.next())
                keys.add(CanonicalKey.of(
                        BsonBytes.ofField(ids.type(), BsonElements.ID, value, ids.valueStart(), ids.valueEnd())));
        }
        return keys;
    }

    /** Why no document can be read by this key; empty if one can. */
    static Optional<String> oddity(byte[] key) {
        BsonElements id = BsonElements.atId(key).orElseThrow();
        if (key.length > MOST_BYTES) return Optional.of("it is too large for a query");
        if (NO_IDS.contains(id.type())) return Optional.of("no _id is an array, a regex or undefined");
        if (!DriverKey.isExact(key)) return Optional.of("no driver sends such an _id unchanged");
        BsonValue value = new RawBsonDocument(key).get("_id");
        return value.isDocument() && isOperator(value.asDocument())
                ? Optional.of("the server takes it for an operator, and stores no such _id")
                : Optional.empty();
    }

    /** Whether a query has another meaning for the document: a reference to a document is one only if it is complete. */
    private static boolean isOperator(BsonDocument id) {
        return !id.isEmpty()
                && id.getFirstKey().startsWith("$")
                && !(id.getFirstKey().equals("$ref") && id.isString("$ref") && id.containsKey("$id"));
    }
}
