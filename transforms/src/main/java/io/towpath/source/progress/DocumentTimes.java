package io.towpath.source;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.ClusterTime;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** Single documents that were read at a moment which the stream has not passed yet. Kept by a digest, as an {@code _id} may be large. */
final class ReadDocuments {
    private final Map<String, ClusterTime> times = new HashMap<>();

    /** From {@code digest=seconds:ordinal,…}. */
    static ReadDocuments parse(String text) {
        ReadDocuments found = new ReadDocuments();
        if (text.isEmpty()) return found;
        for (String one : text.split(",")) {
            String[] parts = one.split("=");
            found.times.put(parts[0], ClusterTime.parse(parts[1]));
        }
        return found;
    }

    void add(String namespace, byte[] key, ClusterTime time) {
        times.put(digest(namespace, key), time);
    }

    /** The moment at which a document was read, if it was. */
    Optional<ClusterTime> timeOf(String namespace, byte[] key) {
        return times.isEmpty() ? Optional.empty() : Optional.ofNullable(times.get(digest(namespace, key)));
    }

    Optional<ClusterTime> largestTime() {
        return times.values().stream().max(ClusterTime::compareTo);
    }

    /** Forgets what the stream has passed; whether there was any. */
    boolean forget(ClusterTime position) {
        return times.values().removeIf(position::isAfter);
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
