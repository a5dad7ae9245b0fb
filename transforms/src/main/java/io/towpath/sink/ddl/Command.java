package io.towpath.sink.ddl;

import com.mongodb.MongoNamespace;
import org.bson.BsonArray;
import org.bson.BsonBinary;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;

/**
 * A command for one database of the destination.
 *
 * @param fence the uuid of the collection that it is meant for; null where any will do
 */
record Command(String database, BsonDocument body, BsonBinary fence) {
    private static final String ADMIN = "admin";
    private static final String MAJORITY = "majority";
    private static final JsonWriterSettings SHELL =
            JsonWriterSettings.builder().outputMode(JsonMode.SHELL).build();

    static Command create(MongoNamespace namespace, BsonDocument options) {
        return of("create", namespace, options, null);
    }

    /** By default, a build would wait for every voting member, also for one that is away. */
    static Command createIndexes(MongoNamespace namespace, BsonArray indexes, BsonBinary fence) {
        BsonDocument arguments = new BsonDocument("indexes", indexes).append("commitQuorum", new BsonString(MAJORITY));
        return of("createIndexes", namespace, arguments, fence);
    }

    static Command dropIndexes(MongoNamespace namespace, BsonArray names, BsonBinary fence) {
        return of("dropIndexes", namespace, new BsonDocument("index", names), fence);
    }

    static Command modify(MongoNamespace namespace, BsonDocument arguments, BsonBinary fence) {
        return of("collMod", namespace, arguments, fence);
    }

    static Command drop(MongoNamespace namespace, BsonBinary fence) {
        return of("drop", namespace, new BsonDocument(), fence);
    }

    /** Within one database, where a collection keeps its uuid. */
    static Command rename(MongoNamespace from, MongoNamespace to, BsonBinary fence) {
        BsonDocument body = new BsonDocument("renameCollection", new BsonString(from.getFullName()))
                .append("to", new BsonString(to.getFullName()))
                .append("dropTarget", BsonBoolean.TRUE);
        return new Command(ADMIN, body, fence);
    }

    private static Command of(String verb, MongoNamespace namespace, BsonDocument arguments, BsonBinary fence) {
        BsonDocument body = new BsonDocument(verb, new BsonString(namespace.getCollectionName()));
        arguments.forEach(body::append);
        return new Command(namespace.getDatabaseName(), body, fence);
    }

    /** What a server is to be sent, which is to have made it durable when it answers. */
    BsonDocument sent(boolean knowsFences) {
        BsonDocument sent = body.clone().append("writeConcern", new BsonDocument("w", new BsonString(MAJORITY)));
        return fence == null || !knowsFences ? sent : sent.append("collectionUUID", fence);
    }

    /** For MongoDB's shell. */
    String shell() {
        return "db.getSiblingDB(%s).runCommand(%s)".formatted("\"" + database + "\"", body.toJson(SHELL));
    }
}
