package io.towpath.source.splice;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/** The remembered arrays of documents. Where they would take too much memory, it drops those of the documents that changed longest ago. */
final class ArrayCache {
    /** Memory of a document without its key's bytes and its arrays: its entry and its place in the map, and six small objects. */
    private static final int OVERHEAD = 250;

    private record Entry(DocumentArrays arrays, long bytes) {}

    /** In the order of their last changes. */
    private final Map<DocumentKey, Entry> entries = new LinkedHashMap<>();

    private final long mostBytes;
    private long bytes;
    private long dropped;

    ArrayCache(long mostBytes) {
        this.mostBytes = mostBytes;
    }

    /** About how much memory it takes. */
    long bytes() {
        return bytes;
    }

    /** How many arrays there was no room for. */
    long dropped() {
        return dropped;
    }

    Optional<DocumentArrays> get(DocumentKey document) {
        return Optional.ofNullable(entries.get(document)).map(Entry::arrays);
    }

    void forget(DocumentKey document) {
        Entry entry = entries.remove(document);
        if (entry != null) bytes -= entry.bytes;
    }

    void forgetAll(String topic) {
        entries.entrySet().removeIf(entry -> {
            boolean isGone = entry.getKey().topic().equals(topic);
            if (isGone) bytes -= entry.getValue().bytes;
            return isGone;
        });
    }

    /** Takes the arrays of a document that has changed. */
    void put(DocumentKey document, DocumentArrays arrays) {
        forget(document);
        if (arrays.count() == 0) return;
        Entry entry = new Entry(arrays, OVERHEAD + document.key().length + arrays.bytes());
        if (entry.bytes > mostBytes) {
            dropped += arrays.count();
            return;
        }
        entries.put(document, entry);
        bytes += entry.bytes;
        Iterator<Entry> oldest = entries.values().iterator();
        while (bytes > mostBytes) {
            Entry gone = oldest.next();
            oldest.remove();
            bytes -= gone.bytes;
            dropped += gone.arrays.count();
        }
    }
}
