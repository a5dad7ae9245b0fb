package io.towpath.fold;

import io.towpath.record.BsonElements;
import io.towpath.record.Splice;
import java.util.List;
import java.util.Optional;
import org.bson.io.BsonOutput;

/**
 * What {@code $push} does to an array: it inserts elements at one place, then drops others at the array's head or at its tail.
 *
 * @param each the elements, as a BSON array
 * @param position where they are inserted; null for the end
 * @param slice how many elements are left, the last ones if negative; null for all
 */
record Push(byte[] each, Integer position, Integer slice) {
    private static final byte[] NO_ELEMENTS = {5, 0, 0, 0, 0};

    static Push cut(int newSize) {
        return new Push(NO_ELEMENTS, null, newSize);
    }

    /** Empty when it takes more than a {@code $push}. */
    static Optional<Push> of(Splice splice) {
        List<Splice.Edit> edits = splice.edits();
        if (edits.size() > 2) return Optional.empty();
        Splice.Edit first = edits.get(0);
        Splice.Edit last = edits.get(edits.size() - 1);
        boolean fromHead = first.at() == 0 && (first == last || !first.inserts() && last.deleted() == 0);
        boolean fromTail = last.end() == splice.length() && (first == last || !last.inserts() && first.deleted() == 0);
        if (first == last && first.deleted() == 0) return of(splice, first, first.at(), null);
        // what the insertion's place is in the array before the head is dropped
        if (fromHead) return of(splice, last, Math.max(last.at(), first.end()), -splice.newLength());
        return fromTail ? of(splice, first, first.at(), splice.newLength()) : Optional.empty();
    }

    private static Optional<Push> of(Splice splice, Splice.Edit edit, int at, Integer slice) {
        Integer position = edit.inserts() && at < splice.length() ? at : null;
        return Optional.of(new Push(edit.inserted(), position, slice));
    }

    void writeTo(BsonOutput out, String path) {
        Container.begin(out, BsonElements.DOCUMENT, path);
        Container.frame(out, () -> {
            Container.begin(out, BsonElements.ARRAY, "$each");
            out.writeBytes(each);
            number(out, "$position", position);
            number(out, "$slice", slice);
        });
    }

    private static void number(BsonOutput out, String name, Integer number) {
        if (number == null) return;
        Container.begin(out, BsonElements.INT32, name);
        out.writeInt32(number);
    }
}
