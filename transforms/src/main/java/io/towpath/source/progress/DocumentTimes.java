package io.towpath.source.progress;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.ClusterTime;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** The cluster times as of which single documents were read, by a digest, as an {@code _id} may be large. */
final class DocumentTimes {
    private final Map<String, ClusterTime> times = new HashMap<>();

    /** From {@code digest=seconds:ordinal,…}. */
    static DocumentTimes parse(String text) {
        DocumentTimes documents = new DocumentTimes();
        if (text.isEmpty()) return documents;
        for (String entry : text.split(",")) {
            String[] parts = entry.split("=");
            documents.times.put(parts[0], ClusterTime.parse(parts[1]));
        }
        return documents;
    }

    void add(String namespace, byte[] key, ClusterTime time) {
        times.put(digest(namespace, key), time);
    }

    /** The cluster time as of which a document was read, if it was. */
    Optional<ClusterTime> timeOf(String namespace, byte[] key) {
        return times.isEmpty() ? Optional.empty() : Optional.ofNullable(times.get(digest(namespace, key)));
    }

    Optional<ClusterTime> largestTime() {
        return times.values().stream().max(ClusterTime::compareTo);
    }

    /** Forgets what the stream has passed; returns whether there was any. */
    boolean forget(ClusterTime position) {
        return times.values().removeIf(position::isAfter);
    }

    int size() {
        return times.size();
    }

    boolean isEmpty() {
        return times.isEmpty();
    }

    @Override
    public String toString() {
        return times.entrySet().stream()
                .map(entry -> entry.getKey() + "=" + entry.getValue())
                .collect(Collectors.joining(","));
    }

    private static String digest(String namespace, byte[] key) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(namespace.getBytes(UTF_8));
            digest.update((byte) 0);
            return HexFormat.of().formatHex(digest.digest(key));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
