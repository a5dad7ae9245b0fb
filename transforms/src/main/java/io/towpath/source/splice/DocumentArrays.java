package io.towpath.source.splice;

import io.towpath.record.BsonElements;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The remembered arrays of one document, as they are behind its last record. */
final class DocumentArrays {
    /** Smaller arrays are not worth it. */
    static final int LEAST_BYTES = 512;

    private static final int LEAST_ELEMENTS = 2;
    private static final int FIRST_CAPACITY = 64;
    /** Memory of an array without its path's bytes and its elements: two objects, two headers of arrays and a place in the list. */
    private static final int OVERHEAD = 100;

    private record Remembered(ArrayPath path, ElementHashes elements) {}

    private final List<Remembered> arrays = new ArrayList<>(1);
    private final ElementHasher hasher;

    DocumentArrays(ElementHasher hasher) {
        this.hasher = hasher;
    }

    int count() {
        return arrays.size();
    }

    /** About how much memory they take. */
    long bytes() {
        long bytes = 0;
        for (Remembered array : arrays) bytes += OVERHEAD + 2L * array.path.bytes().length + array.elements.bytes();
        return bytes;
    }

    /** Follows an update. Returns the splices that can stand in place of what it sets, in the order of their fields. */
    List<ArraySplice> apply(UpdateParts update) {
        List<ArraySplice> splices = new ArrayList<>(1);
        byte[] value = update.value();
        if (update.truncate() > 0) {
            BsonElements fields = new BsonElements(value, update.truncate());
            while (fields.next()) truncate(value, fields);
        }
        if (update.set() > 0) {
            BsonElements fields = new BsonElements(value, update.set());
            while (fields.next()) set(update, fields).ifPresent(splices::add);
        }
        if (update.unset() > 0) {
            BsonElements fields = new BsonElements(value, update.unset());
            while (fields.next()) unset(value, fields);
        }
        return splices;
    }

    private void truncate(byte[] value, BsonElements field) {
        arrays.removeIf(array -> switch (array.path.relation(value, field)) {
            case APART -> false;
            case SAME -> !cut(array.elements, field);
            case CONTAINS -> true;
            case WITHIN -> !becomesUnknown(array, value, field);
        });
    }

    private void unset(byte[] value, BsonElements field) {
        arrays.removeIf(array -> switch (array.path.relation(value, field)) {
            case APART -> false;
            case SAME, CONTAINS -> true;
            case WITHIN -> !becomesUnknown(array, value, field);
        });
    }

    private Optional<ArraySplice> set(UpdateParts update, BsonElements field) {
        byte[] value = update.value();
        Optional<Remembered> before = Optional.empty();
        for (int index = arrays.size() - 1; index >= 0; index--) {
            Remembered array = arrays.get(index);
            PathRelation relation = array.path.relation(value, field);
            if (relation == PathRelation.SAME) before = Optional.of(array);
            boolean isFollowed = relation == PathRelation.APART
                    || relation == PathRelation.WITHIN && putElement(array, value, field);
            if (!isFollowed) arrays.remove(index);
        }
        boolean isArray = UpdateParts.isArrayOf(LEAST_BYTES, field) && update.isApart(field);
        return isArray ? remember(value, field, before) : Optional.empty();
    }

    /** Returns what makes the array before the one that is set now. */
    private Optional<ArraySplice> remember(byte[] value, BsonElements field, Optional<Remembered> before) {
        int expected = before.map(array -> array.elements.length() + 1).orElse(FIRST_CAPACITY);
        Optional<ElementHashes> now = hasher.array(value, field.valueStart(), expected)
                .filter(elements -> elements.length() >= LEAST_ELEMENTS);
        if (now.isEmpty()) return Optional.empty();
        Optional<List<ArrayDiff.Replacement>> changed =
                before.flatMap(array -> ArrayDiff.between(array.elements, now.get()));
        // what is remembered has plain names
        boolean isPlain = changed.map(
                        replacements -> ElementHasher.hasPlainNames(value, field.valueStart(), replacements))
                .orElseGet(() -> ElementHasher.hasPlainNames(value, field));
        if (!isPlain) return Optional.empty();
        before.map(Remembered::path)
                .or(() -> ArrayPath.of(value, field))
                .ifPresent(path -> arrays.add(new Remembered(path, now.get())));
        return changed.flatMap(replacements -> ArraySplice.of(
                value, field, before.get().path.text(), before.get().elements.length(), replacements));
    }

    /** Each returns false when it is not known what the array is then. */
    private static boolean cut(ElementHashes elements, BsonElements field) {
        boolean isCut =
                field.type() == BsonElements.INT32 && field.int32(0) >= 0 && field.int32(0) <= elements.length();
        if (isCut) elements.cut(field.int32(0));
        return isCut;
    }

    private boolean putElement(Remembered array, byte[] value, BsonElements field) {
        Optional<ElementPlace> place = array.path.element(value, field);
        if (place.isEmpty() || place.get().index() > array.elements.length()) return false;
        if (!ElementHasher.hasPlainNames(value, field)) return false;
        if (!place.get().isWhole()) return becomesUnknown(array, value, field);
        hasher.put(array.elements, place.get().index(), value, field);
        return true;
    }

    private static boolean becomesUnknown(Remembered array, byte[] value, BsonElements field) {
        Optional<ElementPlace> place = array.path.element(value, field);
        if (place.isEmpty() || place.get().index() >= array.elements.length()) return false;
        array.elements.setUnknown(place.get().index());
        return true;
    }
}
