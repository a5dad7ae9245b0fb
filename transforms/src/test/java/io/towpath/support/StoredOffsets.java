package io.towpath.support;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;
import org.apache.kafka.connect.storage.OffsetStorageReader;
import org.apache.kafka.connect.storage.OffsetStorageReaderImpl;
import org.apache.kafka.connect.storage.OffsetStorageWriter;

/** A connector's offsets in Connect's own storage, as JSON. */
public final class StoredOffsets implements AutoCloseable {
    private static final String CONNECTOR = "p-source";

    private final JsonConverter converter = new JsonConverter();
    private final MemoryOffsetBackingStore store = new MemoryOffsetBackingStore() {
        @Override
        public Set<Map<String, Object>> connectorPartitions(String connectorName) {
            throw new UnsupportedOperationException("not asked for in these tests");
        }
    };

    public StoredOffsets() {
        converter.configure(Map.of("schemas.enable", "false"), false);
        store.start();
    }

    public OffsetStorageReader reader() {
        return new OffsetStorageReaderImpl(store, CONNECTOR, converter, converter);
    }

    /** Stores the offsets of records, as the commit of their transaction does. */
    public void store(Collection<SourceRecord> records) throws Exception {
        OffsetStorageWriter writer = new OffsetStorageWriter(store, CONNECTOR, converter, converter);
        for (SourceRecord record : records) {
            Map<String, Object> partition = new TreeMap<>(record.sourcePartition());
            @SuppressWarnings("unchecked")
            Map<String, Object> offset = (Map<String, Object>) record.sourceOffset();
            writer.offset(partition, offset);
        }
        assertTrue(writer.beginFlush());
        writer.doFlush((error, nothing) -> {}).get(5, TimeUnit.SECONDS);
    }

    @Override
    public void close() {
        store.stop();
        converter.close();
    }
}
