package io.towpath.source.copy;

import io.towpath.connector.LogRecord;
import io.towpath.connector.TextHeaders;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.record.TopicNames;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.Progress;
import io.towpath.source.rules.Mask;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Records of documents that were read, not streamed.
 *
 * @param partition the source partition that {@code offset} belongs to
 * @param offset is reached once all records of the poll are written: they share a transaction
 */
public record Rows(Progress progress, String namespace, Map<String, ?> partition, Map<String, ?> offset) {
    /** Advances the copy by a page. */
    static List<SourceRecord> copy(Page page, Progress progress) {
        Map<String, Object> partition = progress.partitions().of(page.namespace(), page.range());
        Map<String, Object> offset = progress.ledger().advance(page);
        Rows rows = new Rows(progress, page.namespace(), partition, offset);
        List<SourceRecord> records = rows.records(page.documents(), List.of(), page.time());
        if (records.isEmpty()) records.add(progress.ledger().rangeRecord(page.namespace(), page.range()));
        progress.metrics().copied(page);
        return records;
    }

    /**
     * Deletes, then rows, as the rules leave them.
     *
     * @param gone keys that no document has
     */
    public List<SourceRecord> records(Collection<byte[]> documents, Collection<byte[]> gone, ClusterTime time) {
        List<SourceRecord> records = new ArrayList<>(documents.size() + gone.size());
        String topic = TopicNames.of(progress.name(), namespace);
        Headers deleted = headers("d", time);
        for (byte[] key : gone) records.add(record(topic, key, null, deleted));
        Headers read = headers("r", time);
        Mask mask = progress.rules().of(namespace);
        for (byte[] document : documents)
            records.add(record(topic, CanonicalKey.of(document), mask.ofDocument(document), read));
        return records;
    }

    private static Headers headers(String operation, ClusterTime time) {
        return TextHeaders.of(new RecordHeaders(operation, time, System.currentTimeMillis()));
    }

    private SourceRecord record(String topic, byte[] key, byte[] value, Headers headers) {
        return new LogRecord(partition, offset, topic, null, key, value, headers);
    }
}
