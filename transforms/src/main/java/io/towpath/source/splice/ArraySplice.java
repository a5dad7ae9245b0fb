package io.towpath.source.splice;

import io.towpath.record.BsonElements;
import io.towpath.record.Splice;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.bson.io.BasicOutputBuffer;

/**
 * A splice in place of an array that an update sets.
 *
 * @param start where the field with the array begins in the update's bytes, with its type
 */
record ArraySplice(Splice splice, int start, int end) {
    /** A splice that has more than this share of the array's bytes saves less than it costs the destination to apply. */
    private static final double LARGEST = 0.5;

    /**
     * Empty when no splice is much smaller than the array.
     *
     * @param field of the update, with the array as it is now
     * @param before how many elements it had
     * @param changed how it became what it is
     */
    static Optional<ArraySplice> of(
            byte[] value, BsonElements field, String path, int before, List<ArrayDiff.Replacement> changed) {
        Splice splice = new Splice(path, before, edits(value, field.valueStart(), changed));
        BasicOutputBuffer out = new BasicOutputBuffer();
        splice.writeTo(out);
        boolean isSmaller = out.getPosition() <= LARGEST * (field.valueEnd() - field.valueStart());
        return isSmaller
                ? Optional.of(new ArraySplice(splice, field.nameStart() - 1, field.valueEnd()))
                : Optional.empty();
    }

    private static List<Splice.Edit> edits(byte[] value, int array, List<ArrayDiff.Replacement> replacements) {
        List<Splice.Edit> edits = new ArrayList<>(replacements.size());
        BsonElements elements = new BsonElements(value, array);
        int passed = 0;
        for (ArrayDiff.Replacement replacement : replacements) {
            for (; passed < replacement.from(); passed++) elements.next();
            byte[] inserted = inserted(value, elements, replacement.inserted());
            passed += replacement.inserted();
            edits.add(new Splice.Edit(replacement.at(), replacement.deleted(), inserted));
        }
        if (edits.isEmpty()) edits.add(new Splice.Edit(0, 0, inserted(value, elements, 0))); // the array is as it was
        return edits;
    }

    /** An array of the next elements. */
    private static byte[] inserted(byte[] value, BsonElements elements, int count) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        out.writeInt32(0);
        for (int index = 0; index < count; index++) {
            elements.next();
            out.writeByte(elements.type());
            out.writeCString(Integer.toString(index));
            out.writeBytes(value, elements.valueStart(), elements.valueEnd() - elements.valueStart());
        }
        out.writeByte(0);
        out.writeInt32(0, out.getPosition());
        return out.toByteArray();
    }

    /** The update with the splices in place of the arrays. */
    static byte[] replace(UpdateParts update, List<ArraySplice> splices) {
        byte[] value = update.value();
        BasicOutputBuffer out = new BasicOutputBuffer();
        out.writeInt32(0);
        BsonElements parts = new BsonElements(value, 0);
        while (parts.next()) {
            if (parts.valueStart() == update.set()) rest(value, parts, splices, out);
            else copy(value, parts.nameStart() - 1, parts.valueEnd(), out);
        }
        out.writeByte(0);
        return Splice.append(
                out.toByteArray(), splices.stream().map(ArraySplice::splice).toList());
    }

    /** What else is set, if anything is. */
    private static void rest(byte[] value, BsonElements set, List<ArraySplice> splices, BasicOutputBuffer out) {
        int length = set.valueEnd() - set.valueStart();
        for (ArraySplice splice : splices) length -= splice.end - splice.start;
        if (length == Integer.BYTES + 1) return;
        copy(value, set.nameStart() - 1, set.valueStart(), out);
        out.writeInt32(length);
        int from = set.valueStart() + Integer.BYTES;
        for (ArraySplice splice : splices) {
            copy(value, from, splice.start, out);
            from = splice.end;
        }
        copy(value, from, set.valueEnd(), out);
    }

    private static void copy(byte[] value, int start, int end, BasicOutputBuffer out) {
        out.writeBytes(value, start, end - start);
    }
}
