package io.towpath.source;

import com.mongodb.MongoException;
import com.mongodb.MongoInterruptedException;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import io.towpath.record.ClusterTime;
import io.towpath.transform.EventTime;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches what is done to collections as such, which Debezium's stream does not tell: a change stream of its own, in a thread of its
 * own, so that nothing that befalls it holds up the changes. What it finds goes into the connector's offsets.
 */
final class DdlWatch implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(DdlWatch.class);
    private static final Duration PAUSE = Duration.ofSeconds(5);
    /** So often it is stored how far the source was looked at, when nothing is found. */
    private static final long STORED_NS = Duration.ofSeconds(30).toNanos();
    /** ChangeStreamHistoryLost, in MongoDB's error_codes.yml. */
    private static final int HISTORY_LOST = 286;

    private final SourceCluster source;
    private final Predicate<String> selection;
    private final DdlLog log;
    private final Thread thread;
    private volatile boolean closed;
    /** At first, where it begins. */
    private boolean isNew = true;

    private long storedNs = System.nanoTime();

    /** @param name of the pipeline */
    DdlWatch(SourceCluster source, Predicate<String> selection, DdlLog log, String name) {
        this.source = source;
        this.selection = selection;
        this.log = log;
        thread = new Thread(this::watch, "towpath-ddl-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** What has to be stored now, if anything. */
    synchronized Optional<Map<String, Object>> news() {
        if (!isNew && System.nanoTime() - storedNs < STORED_NS) return Optional.empty();
        isNew = false;
        storedNs = System.nanoTime();
        return Optional.of(log.offset());
    }

    private void watch() {
        while (!Thread.currentThread().isInterrupted()) {
            try (MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor = source.ddl(upto())) {
                tell("");
                while (!Thread.currentThread().isInterrupted()) look(cursor);
            } catch (Throwable error) { // an Error too: it would end the watch unseen
                if (!goesOnAfter(error)) return;
            }
        }
    }

    private void look(MongoChangeStreamCursor<ChangeStreamDocument<BsonDocument>> cursor) {
        ChangeStreamDocument<BsonDocument> event = cursor.tryNext(); // waits for up to a second
        if (event != null && Ddl.isNews(event, selection)) add(Ddl.of(event));
        else if (cursor.getResumeToken() != null) passed(time(cursor.getResumeToken()));
    }

    private boolean goesOnAfter(Throwable error) {
        if (closed || error instanceof MongoInterruptedException) return false;
        if (error instanceof MongoException fault && fault.getCode() == HISTORY_LOST) {
            try {
                add(Ddl.unseen(source.now()));
                return true;
            } catch (MongoException again) {
                LOGGER.debug("the source does not tell its time", again);
            }
        }
        boolean passes = error instanceof MongoException fault && ReadFault.passes(fault);
        String why = error instanceof MongoException fault ? ReadFault.words(fault) : error.toString();
        String words = "drops, renames, indexes and options at the source are not seen: " + why;
        LOGGER.warn(words, passes ? null : error);
        tell(passes ? "" : words); // one that passes is not worth a word to users
        try {
            Thread.sleep(PAUSE.toMillis());
            return true;
        } catch (InterruptedException stopped) {
            return false;
        }
    }

    private synchronized ClusterTime upto() {
        return log.upto();
    }

    private synchronized void add(Ddl one) {
        isNew |= log.add(one);
    }

    private synchronized void passed(ClusterTime time) {
        log.passed(time);
    }

    private synchronized void tell(String words) {
        isNew |= log.tell(words);
    }

    private static ClusterTime time(BsonDocument token) {
        BasicOutputBuffer bytes = new BasicOutputBuffer();
        new BsonDocumentCodec()
                .encode(
                        new BsonBinaryWriter(bytes),
                        token,
                        EncoderContext.builder().build());
        String text = Base64.getEncoder().encodeToString(bytes.toByteArray());
        return EventTime.of(Map.of("resume_token", text)).orElseThrow();
    }

    @Override
    public void close() {
        closed = true;
        thread.interrupt();
    }
}
