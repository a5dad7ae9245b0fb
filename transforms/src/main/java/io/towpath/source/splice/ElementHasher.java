package io.towpath.source.splice;

import io.towpath.record.BsonElements;
import java.nio.ByteBuffer;
import java.security.DigestException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/**
 * Hashes elements by their types and bytes, with half of SHA-256: equal hashes stand for equal elements, and no one can make two others that
 * have the same.
 */
final class ElementHasher {
    private static final int BYTES = 32;

    private final MessageDigest digest;
    private final byte[] result = new byte[BYTES];
    private final ByteBuffer halves = ByteBuffer.wrap(result);

    ElementHasher() {
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every JVM has SHA-256", error);
        }
    }

    /**
     * The hashes of an array; empty when its elements are not named 0, 1, 2, …: the server names them so where it puts an array together from
     * parts of another.
     *
     * @param expected about how many elements it has
     */
    Optional<ElementHashes> array(byte[] bytes, int start, int expected) {
        ElementHashes hashes = new ElementHashes(expected);
        BsonElements elements = new BsonElements(bytes, start);
        while (elements.next()) {
            if (!isNamed(hashes.length(), bytes, elements)) return Optional.empty();
            hash(bytes, elements);
            hashes.append(halves.getLong(0), halves.getLong(Long.BYTES));
        }
        return Optional.of(hashes.trimmed());
    }

    /** Whether the elements that an array has in these places have plain names, as {@link #hasPlainNames(byte[], BsonElements)}. */
    static boolean hasPlainNames(byte[] bytes, int array, List<ArrayDiff.Replacement> replacements) {
        BsonElements elements = new BsonElements(bytes, array);
        int passed = 0;
        for (ArrayDiff.Replacement replacement : replacements) {
            for (; passed < replacement.from(); passed++) elements.next();
            for (; passed < replacement.from() + replacement.inserted(); passed++) {
                elements.next();
                if (!hasPlainNames(bytes, elements)) return false;
            }
        }
        return true;
    }

    private static boolean isNamed(int index, byte[] bytes, BsonElements element) {
        int rest = index;
        int at = element.valueStart() - 2;
        do {
            if (at < element.nameStart() || bytes[at] != '0' + rest % 10) return false;
            rest /= 10;
            at--;
        } while (rest > 0);
        return at < element.nameStart();
    }

    /**
     * Whether the elements of all arrays in a value are named 0, 1, 2, …, and no object in it has a name twice, at which mongod (6.0.5) aborts
     * when it puts an array together from parts of another.
     */
    static boolean hasPlainNames(byte[] bytes, BsonElements value) {
        boolean isArray = value.type() == BsonElements.ARRAY;
        if (!isArray && value.type() != BsonElements.DOCUMENT) return true;
        long seen = 0; // a bit for each hash of a name
        boolean mayRepeat = false;
        BsonElements elements = new BsonElements(bytes, value.valueStart());
        for (int index = 0; elements.next(); index++) {
            if (isArray && !isNamed(index, bytes, elements) || !hasPlainNames(bytes, elements)) return false;
            if (isArray) continue;
            long bit = 1L << nameHash(bytes, elements);
            mayRepeat |= (seen & bit) != 0;
            seen |= bit;
        }
        return !mayRepeat || areDifferent(bytes, value.valueStart());
    }

    /** Its lower six bits count: a shift ignores the others. */
    private static int nameHash(byte[] bytes, BsonElements field) {
        int first = field.nameStart();
        int length = field.valueStart() - 1 - first;
        return 31 * (31 * length + bytes[first]) + bytes[first + Math.max(length - 1, 0)];
    }

    private static boolean areDifferent(byte[] bytes, int object) {
        Set<ByteBuffer> names = new HashSet<>();
        BsonElements fields = new BsonElements(bytes, object);
        while (fields.next()) {
            int length = fields.valueStart() - 1 - fields.nameStart();
            if (!names.add(ByteBuffer.wrap(bytes, fields.nameStart(), length))) return false;
        }
        return true;
    }

    /** Puts an element in place of one of an array, or behind its last. */
    void put(ElementHashes hashes, int index, byte[] bytes, BsonElements element) {
        hash(bytes, element);
        if (index == hashes.length()) hashes.append(halves.getLong(0), halves.getLong(Long.BYTES));
        else hashes.set(index, halves.getLong(0), halves.getLong(Long.BYTES));
    }

    private void hash(byte[] bytes, BsonElements element) {
        digest.update(element.type());
        digest.update(bytes, element.valueStart(), element.valueEnd() - element.valueStart());
        try {
            digest.digest(result, 0, BYTES);
        } catch (DigestException error) {
            throw new IllegalStateException(error);
        }
    }
}
