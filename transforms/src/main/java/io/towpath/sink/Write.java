package io.towpath.sink;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.WriteModel;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * One write, and the records that it applies.
 *
 * @param bytes of the document or of the update operators
 * @param mayMiss whether the document may rightly not exist
 */
record Write(
        List<SinkRecord> records,
        DocumentId document,
        Kind kind,
        WriteModel<BsonDocument> model,
        int bytes,
        boolean mayMiss) {
    /** The classes that the server takes in bulk, in the order in which a wave sends them. */
    enum Kind {
        INSERT,
        CHANGE,
        DELETE
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

    /** Whether each is about another document. */
    static <T> boolean areDistinct(List<T> all, Function<T, DocumentId> documentOf) {
        Set<DocumentId> seen = new HashSet<>(all.size() * 2);
        for (T one : all) if (!seen.add(documentOf.apply(one))) return false;
        return true;
    }

    MongoNamespace namespace() {
        return document.namespace();
    }

    SinkRecord record() {
        return records.get(0);
    }

    boolean isFolded() {
        return records.size() > 1;
    }
}
