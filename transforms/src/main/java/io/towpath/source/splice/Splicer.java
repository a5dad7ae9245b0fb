package io.towpath.source.splice;

import io.towpath.connector.LogRecord;
import io.towpath.source.progress.SourceMetrics;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Puts splices in place of arrays in updates, where these are smaller. It remembers the arrays that it has seen in updates, as the log has
 * them: so it has to see every record about a document that the log gets, in their order.
 */
public final class Splicer {
    private final boolean isOn;
    private final SourceMetrics metrics;
    private final SpliceTotals totals;
    private final ArrayCache cache;
    private final ElementHasher hasher = new ElementHasher();

    /** @param cacheBytes how much memory the remembered arrays may take; 0: there are no splices */
    public Splicer(long cacheBytes, SourceMetrics metrics, SpliceTotals totals) {
        this.isOn = cacheBytes > 0;
        this.cache = new ArrayCache(cacheBytes);
        this.metrics = metrics;
        this.totals = totals;
    }

    /** The record that the log gets: the same one where there is nothing to splice. */
    public SourceRecord applyTo(SourceRecord record) {
        if (!isOn || !(record instanceof LogRecord)) return record;
        Optional<UpdateParts> update = UpdateParts.of((byte[]) record.value());
        if (update.isEmpty()) {
            forget(record);
            return record;
        }
        List<ArraySplice> splices = follow(document(record), update.get());
        return splices.isEmpty() ? record : spliced(record, update.get(), splices);
    }

    /** The document is not what its records say: one of them does not reach the log. */
    public void forget(SourceRecord record) {
        if (!isOn || !(record instanceof LogRecord)) return;
        cache.forget(document(record));
        metrics.spliceCache(cache.bytes(), cache.dropped());
    }

    /** The documents of this topic are others from now on. */
    public void forgetAll(String topic) {
        cache.forgetAll(topic);
        metrics.spliceCache(cache.bytes(), cache.dropped());
    }

    private static DocumentKey document(SourceRecord record) {
        return new DocumentKey(record.topic(), (byte[]) record.key());
    }

    private List<ArraySplice> follow(DocumentKey document, UpdateParts update) {
        Optional<DocumentArrays> remembered = cache.get(document);
        if (remembered.isEmpty() && !update.setsArrayOf(DocumentArrays.LEAST_BYTES)) return List.of();
        DocumentArrays arrays = remembered.orElseGet(() -> new DocumentArrays(hasher));
        List<ArraySplice> splices = arrays.apply(update);
        cache.put(document, arrays);
        metrics.spliceCache(cache.bytes(), cache.dropped());
        totals.dropped(cache.dropped());
        return splices;
    }

    private SourceRecord spliced(SourceRecord record, UpdateParts update, List<ArraySplice> splices) {
        byte[] value = ArraySplice.replace(update, splices);
        int saved = update.value().length - value.length;
        metrics.spliced(splices.size(), saved);
        totals.spliced(splices.size(), saved);
        return LogRecord.with(record, value);
    }
}
