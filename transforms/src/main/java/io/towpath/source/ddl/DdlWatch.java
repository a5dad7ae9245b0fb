package io.towpath.source.ddl;

import com.mongodb.MongoException;
import com.mongodb.MongoInterruptedException;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.debezium.EventTime;
import io.towpath.debezium.SourceCluster;
import io.towpath.net.ReadFault;
import io.towpath.net.ServerError;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches for schema changes, which Debezium's stream does not report, with a separate change stream and thread, so that its errors
 * do not hold up the changes. What it finds goes into the connector's offsets.
 */
public final class DdlWatch implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(DdlWatch.class);
    private static final Duration PAUSE = Duration.ofSeconds(5);

    private final SourceCluster source;
    private final Predicate<String> selection;
    private final DdlLog log;
    private final Thread thread;
    private volatile boolean closed;

    /** @param name of the pipeline */
    public DdlWatch(SourceCluster source, Predicate<String> selection, DdlLog log, String name) {
        this.source = source;
        this.selection = selection;
        this.log = log;
        thread = new Thread(this::watch, "towpath-ddl-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** The offset that has to be stored now, if any. */
    public Optional<Map<String, Object>> dueOffset() {
        return log.dueOffset();
    }

    private void watch() {
        while (!Thread.currentThread().isInterrupted()) {
            try {
                if (source.reportsSchemaChanges()) follow();
                else awaitUpgrade();
            } catch (Throwable error) { // also an Error: it would end the watch unnoticed
                if (!continuesAfter(error)) return;
            }
        }
    }

    private void follow() {
        try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor = cursor()) {
            log.report("");
            while (!Thread.currentThread().isInterrupted()) read(cursor);
        }
    }

    /** Nothing can be seen before that; {@code check} says so, as it is no fault that anyone has to fix. */
    private void awaitUpgrade() throws InterruptedException {
        log.report("");
        Thread.sleep(PAUSE.toMillis());
    }

    private void read(MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor) {
        ChangeStreamDocument<BsonDocument> event = cursor.tryNext(); // waits for up to a second
        if (event != null && Ddl.isRelevant(event, selection)) log.add(Ddl.of(event));
        else if (cursor.getResumeToken() != null) log.passed(EventTime.ofToken(cursor.getResumeToken()));
    }

    /** The schema changes of the whole deployment. */
    private MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor() {
        BsonArray kinds = new BsonArray(Ddl.KINDS.stream().map(BsonString::new).toList());
        BsonDocument filter = new BsonDocument("operationType", new BsonDocument("$in", kinds));
        return source.changes(List.of(new BsonDocument("$match", filter)))
                .showExpandedEvents(true)
                .startAtOperationTime(log.upto().timestamp())
                .maxAwaitTime(1, TimeUnit.SECONDS)
                .cursor();
    }

    private boolean continuesAfter(Throwable error) {
        if (closed || error instanceof MongoInterruptedException) return false;
        if (error instanceof MongoException fault && ServerError.ChangeStreamHistoryLost.is(fault)) {
            try {
                log.add(Ddl.unseen(source.now()));
                return true;
            } catch (MongoException again) {
                LOGGER.debug("the source does not report its cluster time", again);
            }
        }
        boolean isTransient = error instanceof MongoException fault && ReadFault.isTransient(fault);
        String reason = error instanceof MongoException fault ? ReadFault.message(fault) : error.toString();
        String message = "drops, renames, indexes and options at the source are not watched: " + reason;
        LOGGER.warn(message, isTransient ? null : error);
        log.report(isTransient ? "" : message); // users need not know of a transient error
        try {
            Thread.sleep(PAUSE.toMillis());
            return true;
        } catch (InterruptedException stopped) {
            return false;
        }
    }

    @Override
    public void close() {
        closed = true;
        thread.interrupt();
    }
}
