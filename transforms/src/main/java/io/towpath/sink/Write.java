package io.towpath.sink;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import io.towpath.connector.TextHeaders;
import io.towpath.record.BsonElements;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * One write, and the records that it applies.
 *
 * @param bytes of the document or of the update operators
 * @param mayMiss whether the document may rightly not exist
 * @param lengths path → how many elements the array there has, or else the write does not find its document
 * @param isPipeline whether the write does not find its document, either, where a name that it changes is twice
 */
record Write(
        List<SinkRecord> records,
        DocumentId document,
        Kind kind,
        WriteModel<BsonDocument> model,
        int bytes,
        boolean mayMiss,
        Map<String, Integer> lengths,
        boolean isPipeline) {
    /** Of a document in any state. */
    Write(
            List<SinkRecord> records,
            DocumentId document,
            Kind kind,
            WriteModel<BsonDocument> model,
            int bytes,
            boolean mayMiss) {
        this(records, document, kind, model, bytes, mayMiss, Map.of(), false);
    }

    /** The classes that the server takes in bulk, in the order in which a wave sends them. */
    enum Kind {
        DELETE("delete", "deletes"),
        INSERT("insert", "documents"),
        CHANGE("update", "updates");

        private final String command;
        private final String writes;

        Kind(String command, String writes) {
            this.command = command;
            this.writes = writes;
        }

        /** The server's command. */
        String command() {
            return command;
        }

        /** The command's name of its writes. */
        String writes() {
            return writes;
        }
    }

    /** The identity of a document at the destination. Its id is the key of its records, the same for all of its changes. */
    static final class DocumentId {
        private final MongoNamespace namespace;
        private final byte[] id;
        private final int hash;

        DocumentId(MongoNamespace namespace, byte[] id) {
            this.namespace = namespace;
            this.id = id;
            this.hash = 31 * Arrays.hashCode(id) + namespace.hashCode();
        }

        MongoNamespace namespace() {
            return namespace;
        }

        /** Whether a default collation may find another {@code _id} equal to this one. */
        boolean isCollated() {
            byte type = BsonElements.atId(id).orElseThrow().type();
            return type == BsonElements.STRING || type == BsonElements.DOCUMENT;
        }

        byte[] id() {
            return id;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof DocumentId that
                    && hash == that.hash
                    && Arrays.equals(id, that.id)
                    && namespace.equals(that.namespace);
        }

        @Override
        public int hashCode() {
            return hash;
        }
    }

    MongoNamespace namespace() {
        return document.namespace();
    }

    SinkRecord record() {
        return records.get(0);
    }

    /** Whether the write changes a document that exists, and makes none. */
    boolean isUpdate() {
        return model instanceof UpdateOneModel<BsonDocument> update
                && !update.getOptions().isUpsert();
    }

    /** Whether the document may rightly be missing, as its row follows. The last update says so of all. */
    boolean rowFollows() {
        return TextHeaders.rowFollows(records.get(records.size() - 1));
    }

    boolean isConditional() {
        return !lengths.isEmpty() || isPipeline;
    }

    boolean isFolded() {
        return records.size() > 1;
    }
}
