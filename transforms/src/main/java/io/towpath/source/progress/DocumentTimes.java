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
    /** Digits of a digest that are of the namespace; the rest is of the key. */
    private static final int NAMESPACE_DIGITS = 16;

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

    /** Whether a document of a collection was read as of {@code time} or later. */
    boolean isAhead(String namespace, ClusterTime time) {
        if (times.isEmpty()) return false;
        String digits = digits(namespace);
        return times.entrySet().stream()
                .anyMatch(
                        read -> !time.isAfter(read.getValue()) && read.getKey().startsWith(digits));
    }

    Optional<ClusterTime> largestTime() {
        return times.values().stream().max(ClusterTime::compareTo);
    }

    /** Forgets what the stream has passed; returns whether there was any. */
    boolean forget(ClusterTime position) {
        return times.values().removeIf(position::isAfter);
    }

    /** Forgets those of a collection. */
    void forget(String namespace) {
        String digits = digits(namespace);
        times.keySet().removeIf(digest -> digest.startsWith(digits));
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
        return digits(namespace) + sha256(key).substring(NAMESPACE_DIGITS);
    }

    private static String digits(String namespace) {
        return sha256(namespace.getBytes(UTF_8)).substring(0, NAMESPACE_DIGITS);
    }

    private static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
