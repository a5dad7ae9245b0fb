package io.towpath.source.copy;

import com.mongodb.MongoException;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoCursor;
import io.towpath.net.ReadFault;
import io.towpath.record.BsonBytes;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.bson.RawBsonDocument;

/**
 * Documents of a collection as bytes, in the order in which the server sends them. A name that was a collection's may be a view's by now, whose
 * documents are those of other collections: then there are none, as of a collection that was dropped.
 */
public final class DocumentCursor implements Iterator<byte[]>, AutoCloseable {
    /** Null for a view. */
    private final MongoCursor<RawBsonDocument> cursor;

    private DocumentCursor(MongoCursor<RawBsonDocument> cursor) {
        this.cursor = cursor;
    }

    /** Throws the driver's exceptions. */
    static DocumentCursor open(FindIterable<RawBsonDocument> find) {
        try {
            // servers refuse this option in a read of a view, and a replica set ignores it in any other
            return new DocumentCursor(find.partial(true).iterator());
        } catch (MongoException error) {
            if (!ReadFault.isOfAView(error)) throw error;
            return new DocumentCursor(null);
        }
    }

    @Override
    public boolean hasNext() {
        return cursor != null && cursor.hasNext();
    }

    @Override
    public byte[] next() {
        if (cursor == null) throw new NoSuchElementException();
        return BsonBytes.of(cursor.next());
    }

    @Override
    public void close() {
        if (cursor != null) cursor.close();
    }
}
