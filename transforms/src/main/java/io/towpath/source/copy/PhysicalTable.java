package io.towpath.source.copy;

import com.mongodb.MongoException;
import com.mongodb.ReadPreference;
import com.mongodb.client.MongoCursor;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import io.towpath.source.progress.RecordIds;
import java.util.List;
import java.util.Optional;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;

/**
 * Where a member keeps a collection.
 *
 * @param member host and port, as the replica set names it
 * @param name WiredTiger's, which contains a random number of the member's
 * @param documents about how many
 * @param bytes of all documents
 */
record PhysicalTable(String member, String name, long documents, long bytes) {
    /** Of the member that {@code preference} selects; empty for no collection, or one that is not in WiredTiger. */
    static Optional<PhysicalTable> of(SourceCluster source, String namespace, ReadPreference preference) {
        BsonDocument stage = BsonDocument.parse("{$collStats: {storageStats: {}}}");
        try (MongoCursor<BsonDocument> cursor = source.collection(namespace)
                .withReadPreference(preference)
                .aggregate(List.of(stage))
                .cursor()) {
            if (!cursor.hasNext()) return Optional.empty();
            BsonDocument stats = cursor.next().getDocument("storageStats");
            String uri = stats.getDocument("wiredTiger", new BsonDocument())
                    .getString("uri", new BsonString(""))
                    .getValue();
            if (uri.isEmpty()) return Optional.empty();
            return Optional.of(new PhysicalTable(
                    cursor.getServerAddress().toString(),
                    uri,
                    stats.getNumber("count", new BsonInt32(0)).longValue(),
                    stats.getNumber("size", new BsonInt32(0)).longValue()));
        } catch (MongoException error) {
            if (!ServerError.NamespaceNotFound.is(error) && !ReadFault.isOfAView(error)) throw error;
            return Optional.empty();
        }
    }

    boolean isOf(RecordIds ids) {
        return member.equals(ids.member()) && name.equals(ids.table());
    }
}
