package io.towpath.sink;

import com.mongodb.MongoNamespace;
import com.mongodb.client.model.WriteModel;
import java.nio.ByteBuffer;
import org.apache.kafka.connect.sink.SinkRecord;
import org.bson.BsonDocument;

/**
 * One record as one write.
 *
 * @param id the record's key: the same for all changes of one document
 */
record Write(SinkRecord record, MongoNamespace namespace, ByteBuffer id, Kind kind, WriteModel<BsonDocument> model) {
    /** The classes that the server takes in bulk, in the order in which a wave sends them. */
    enum Kind {
        INSERT,
        CHANGE,
        DELETE
    }
}
