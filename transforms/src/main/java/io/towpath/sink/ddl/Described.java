package io.towpath.sink.ddl;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoNamespace;
import com.mongodb.ReadPreference;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoDatabase;
import io.towpath.net.ServerError;
import java.util.ArrayList;
import java.util.List;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.bson.BsonValue;

/**
 * A collection or view as the destination describes it.
 *
 * @param uuid null for a view
 * @param indexes without that of {@code _id}
 * @param building indexes that are being built: they may still come to nothing
 */
record Described(
        boolean isView,
        BsonDocument options,
        BsonBinary uuid,
        List<BsonDocument> indexes,
        List<BsonDocument> building) {
    private static final String ID_INDEX = "_id_";
    private static final int MOST_INDEXES = 1_000;

    /** Null when there is none of this name. */
    static Described of(MongoClient client, MongoNamespace namespace) {
        MongoDatabase database =
                client.getDatabase(namespace.getDatabaseName()).withReadPreference(ReadPreference.primary());
        BsonDocument entry = database.listCollections(BsonDocument.class)
                .filter(new BsonDocument("name", new BsonString(namespace.getCollectionName())))
                .first();
        if (entry == null) return null;
        BsonDocument options = entry.getDocument("options", new BsonDocument());
        if (entry.getString("type").getValue().equals("view"))
            return new Described(true, options, null, List.of(), List.of());
        List<BsonDocument> indexes = new ArrayList<>();
        List<BsonDocument> building = new ArrayList<>();
        for (BsonDocument index : indexes(database, namespace.getCollectionName())) {
            BsonDocument spec = index.getDocument("spec", index);
            boolean isIds = spec.getString("name").getValue().equals(ID_INDEX)
                    || spec.get("clustered", BsonBoolean.FALSE).equals(BsonBoolean.TRUE);
            if (!isIds) (spec == index ? indexes : building).add(spec);
        }
        return new Described(false, options, entry.getDocument("info").getBinary("uuid", null), indexes, building);
    }

    /** The driver's list does not tell indexes apart that are being built. A collection has at most 64. */
    private static List<BsonDocument> indexes(MongoDatabase database, String collection) {
        BsonDocument command = new BsonDocument("listIndexes", new BsonString(collection))
                .append("includeBuildUUIDs", BsonBoolean.TRUE)
                .append("cursor", new BsonDocument("batchSize", new BsonInt32(MOST_INDEXES)));
        try {
            return database
                    .runCommand(command, BsonDocument.class)
                    .getDocument("cursor")
                    .getArray("firstBatch")
                    .stream()
                    .map(BsonValue::asDocument)
                    .toList();
        } catch (MongoCommandException error) {
            if (ServerError.NamespaceNotFound.is(error)) return List.of();
            throw error;
        }
    }

    /** Those of these indexes that it does not have, as they are to be created. */
    BsonArray missing(List<BsonDocument> wanted) {
        return relaxed(wanted.stream()
                .filter(index -> indexes.stream().noneMatch(own -> Relaxed.areAlike(own, index)))
                .toList());
    }

    static BsonArray relaxed(List<BsonDocument> indexes) {
        return new BsonArray(indexes.stream().map(Relaxed::index).toList());
    }

    /** The names of those of its indexes that stand in the way of one of these: of the same name, or of the same key. */
    List<BsonString> inTheWayOf(List<BsonDocument> wanted) {
        return indexes.stream()
                .filter(own -> wanted.stream()
                        .anyMatch(index -> own.get("name").equals(index.get("name"))
                                || own.get("key").equals(index.get("key"))))
                .map(own -> own.getString("name"))
                .toList();
    }

    /** The names of those of these indexes that it has. */
    BsonArray present(List<BsonDocument> others) {
        BsonArray names = new BsonArray();
        for (BsonDocument index : others)
            if (indexes.stream().anyMatch(own -> own.get("name").equals(index.get("name"))))
                names.add(index.get("name"));
        return names;
    }

    /** Whether it has the index that a {@code collMod} names, by its name or by its key. */
    boolean has(BsonDocument named) {
        return indexes.stream()
                .anyMatch(own -> own.get("name").equals(named.get("name"))
                        || own.get("key").equals(named.get("keyPattern")));
    }

    boolean is(BsonBinary other) {
        return uuid != null && uuid.equals(other);
    }
}
