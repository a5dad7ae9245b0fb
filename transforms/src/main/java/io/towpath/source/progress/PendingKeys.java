package io.towpath.source.progress;

import static java.util.stream.Collectors.toCollection;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeSet;

/**
 * Documents of one collection that changed, until they are re-read. Their keys are in chunks, each of which is an offset of the connector.
 * Only the last chunk grows or shrinks.
 */
final class PendingKeys {
    private static final int CHUNK_KEYS = 1_000;
    private static final int CHUNK_BYTES = 64 << 10;
    /** Memory of a key without its bytes: its array, its buffer, and its entries in two sets. */
    private static final int OVERHEAD = 200;

    private final List<Set<ByteBuffer>> chunks = new ArrayList<>();
    private final Set<ByteBuffer> keys = new HashSet<>();
    /** Of keys in the last chunk. */
    private int lastBytes;

    private long memory;
    /** Chunks whose offsets are not emitted yet. */
    private final TreeSet<Integer> changed = new TreeSet<>();
    /** How many chunks have an offset. */
    private int stored;

    PendingKeys() {}

    /** From the offsets of its chunks, which are numbered from 0 without a gap. */
    PendingKeys(List<Map<String, Object>> offsets) {
        for (Map<String, Object> offset : offsets) {
            ByteBuffer stored = ByteBuffer.wrap(Base64.getDecoder().decode((String) offset.get("keys")));
            Set<ByteBuffer> chunk = new HashSet<>();
            lastBytes = stored.remaining();
            while (stored.hasRemaining()) {
                byte[] key = new byte[Integer.reverseBytes(stored.getInt(stored.position()))];
                stored.get(key);
                chunk.add(ByteBuffer.wrap(key));
            }
            chunks.add(chunk);
            keys.addAll(chunk);
            memory += lastBytes + (long) OVERHEAD * chunk.size();
        }
        stored = chunks.size();
    }

    boolean contains(byte[] key) {
        return keys.contains(ByteBuffer.wrap(key));
    }

    /** Returns whether the key is new. */
    boolean add(byte[] key) {
        ByteBuffer added = ByteBuffer.wrap(key);
        if (!keys.add(added)) return false;
        int last = chunks.size() - 1;
        if (last < 0 || chunks.get(last).size() >= CHUNK_KEYS || lastBytes + key.length > CHUNK_BYTES) {
            chunks.add(new HashSet<>());
            lastBytes = 0;
        }
        chunks.get(chunks.size() - 1).add(added);
        lastBytes += key.length;
        memory += key.length + OVERHEAD;
        changed.add(chunks.size() - 1);
        return true;
    }

    boolean isEmpty() {
        return keys.isEmpty();
    }

    int size() {
        return keys.size();
    }

    int chunks() {
        return chunks.size();
    }

    /** About how many bytes of memory the keys take. */
    long memory() {
        return memory;
    }

    /** Keys to re-read next: those of the last chunk. */
    List<byte[]> next() {
        return chunks.get(chunks.size() - 1).stream().map(ByteBuffer::array).toList();
    }

    /**
     * Removes keys of {@link #next()} that are re-read.
     *
     * @return the number of their chunk if it has an offset, which has to change
     */
    OptionalInt remove(Collection<byte[]> answered) {
        int last = chunks.size() - 1;
        boolean isStored = last < stored;
        Set<ByteBuffer> gone = answered.stream().map(ByteBuffer::wrap).collect(toCollection(HashSet::new));
        chunks.get(last).removeAll(gone);
        keys.removeAll(gone);
        memory -= bytes(gone) + (long) OVERHEAD * gone.size();
        boolean isEmpty = chunks.get(last).isEmpty();
        if (isEmpty) chunks.remove(last);
        if (isEmpty || isStored) changed.remove(last);
        stored = Math.min(stored, chunks.size());
        lastBytes = chunks.isEmpty() ? 0 : bytes(chunks.get(chunks.size() - 1));
        return isStored ? OptionalInt.of(last) : OptionalInt.empty();
    }

    private static int bytes(Set<ByteBuffer> chunk) {
        return chunk.stream().mapToInt(ByteBuffer::remaining).sum();
    }

    /** The numbers of chunks with new keys; each number once. */
    List<Integer> takeChanged() {
        List<Integer> taken = List.copyOf(changed);
        changed.clear();
        stored = chunks.size();
        return taken;
    }

    /** The offset of a chunk; null when it no longer exists. */
    Map<String, Object> offset(int index) {
        if (index >= chunks.size()) return null;
        Set<ByteBuffer> chunk = chunks.get(index);
        ByteBuffer buffer = ByteBuffer.allocate(bytes(chunk));
        chunk.forEach(key -> buffer.put(key.array()));
        return Map.of(
                "documents", (long) chunk.size(), "keys", Base64.getEncoder().encodeToString(buffer.array()));
    }
}
