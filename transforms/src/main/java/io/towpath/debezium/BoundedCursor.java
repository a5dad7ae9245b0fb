package io.towpath.debezium;

import com.mongodb.ServerAddress;
import com.mongodb.ServerCursor;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import org.bson.BsonDocument;

/** A cursor of a change stream that reads an event only when those before leave room for it. */
final class BoundedCursor implements MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> {
    private final MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor;
    private final QueuedBytes bytes;

    private BoundedCursor(MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor, QueuedBytes bytes) {
        this.cursor = cursor;
        this.bytes = bytes;
    }

    /** The stream, whose cursor is bounded. */
    @SuppressWarnings("unchecked")
    static ChangeStreamIterable<BsonDocument> of(ChangeStreamIterable<BsonDocument> stream, QueuedBytes bytes) {
        return (ChangeStreamIterable<BsonDocument>) Proxy.newProxyInstance(
                BoundedCursor.class.getClassLoader(),
                new Class<?>[] {ChangeStreamIterable.class},
                (proxy, method, arguments) -> {
                    if (method.getName().equals("cursor")) return new BoundedCursor(stream.cursor(), bytes);
                    try {
                        return method.invoke(stream, arguments);
                    } catch (InvocationTargetException error) {
                        throw error.getCause();
                    }
                });
    }

    @Override
    public ChangeStreamDocument<BsonDocument> tryNext() {
        bytes.awaitRoom();
        return counted(cursor.tryNext());
    }

    @Override
    public ChangeStreamDocument<BsonDocument> next() {
        bytes.awaitRoom();
        return counted(cursor.next());
    }

    private ChangeStreamDocument<BsonDocument> counted(ChangeStreamDocument<BsonDocument> event) {
        if (event != null) bytes.read(event);
        return event;
    }

    @Override
    public boolean hasNext() {
        return cursor.hasNext();
    }

    @Override
    public int available() {
        return cursor.available();
    }

    @Override
    public BsonDocument getResumeToken() {
        return cursor.getResumeToken();
    }

    @Override
    public ServerCursor getServerCursor() {
        return cursor.getServerCursor();
    }

    @Override
    public ServerAddress getServerAddress() {
        return cursor.getServerAddress();
    }

    @Override
    public void close() {
        cursor.close();
    }
}
