package io.towpath.source.copy;

import io.towpath.connector.TextHeaders;
import io.towpath.record.CanonicalKey;
import io.towpath.record.ClusterTime;
import io.towpath.record.RecordHeaders;
import io.towpath.record.TopicNames;
import io.towpath.source.progress.Page;
import io.towpath.source.progress.Progress;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Records of documents that were read, not streamed.
 *
 * @param partition the source partition that {@code offset} belongs to
 * @param offset is reached once all records of the poll are written: they share a transaction
 */
public record Rows(String topicPrefix, String namespace, Map<String, Object> partition, Map<String, Object> offset) {
    /** Advances the copy by a page. */
    static void copy(Page page, Progress progress, Collection<SourceRecord> into) {
        Map<String, Object> partition = progress.partitions().of(page.namespace(), page.range());
        Map<String, Object> offset = progress.ledger().advance(page);
        new Rows(progress.name(), page.namespace(), partition, offset).documents(page.documents(), page.time(), into);
        if (page.documents().isEmpty()) into.add(progress.ledger().rangeRecord(page.namespace(), page.range()));
        progress.metrics().copied(page);
    }

    public void documents(Collection<byte[]> documents, ClusterTime time, Collection<SourceRecord> into) {
        Headers headers = headers("r", time);
        for (byte[] document : documents) into.add(record(CanonicalKey.of(document), document, headers));
    }

    /** Documents that do not exist. */
    public void gone(Collection<byte[]> keys, ClusterTime time, Collection<SourceRecord> into) {
        Headers headers = headers("d", time);
        for (byte[] key : keys) into.add(record(key, null, headers));
    }

    private static Headers headers(String operation, ClusterTime time) {
        return TextHeaders.of(new RecordHeaders(operation, time, System.currentTimeMillis()));
    }

    private SourceRecord record(byte[] key, byte[] value, Headers headers) {
        return new SourceRecord(
                partition,
                offset,
                TopicNames.of(topicPrefix, namespace),
                null,
                Schema.BYTES_SCHEMA,
                key,
                Schema.OPTIONAL_BYTES_SCHEMA,
                value,
                null,
                headers);
    }
}
