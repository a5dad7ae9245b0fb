package io.towpath.record;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.bson.io.BasicOutputBuffer;
import org.bson.io.BsonOutput;

/**
 * How an array changed: some of its elements are gone, and others are in their place.
 *
 * @param path of the array
 * @param length of the array before; on an array of another length the splice has no meaning
 * @param edits at least one; their places are those in the array before, ascend and do not overlap
 */
public record Splice(String path, int length, List<Edit> edits) {
    /** No document has room for so many elements. */
    private static final int MOST_ELEMENTS = 16 << 20;

    /**
     * From place {@code at} on, so many elements are gone, and others are in their place.
     *
     * @param inserted a BSON array
     */
    public record Edit(int at, int deleted, byte[] inserted) {
        /** Exclusive. */
        public int end() {
            return at + deleted;
        }

        public boolean inserts() {
            return new BsonElements(inserted, 0).next();
        }

        public int insertions() {
            BsonElements elements = new BsonElements(inserted, 0);
            int count = 0;
            while (elements.next()) count++;
            return count;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Edit that
                    && at == that.at
                    && deleted == that.deleted
                    && Arrays.equals(inserted, that.inserted);
        }

        @Override
        public int hashCode() {
            return 31 * (31 * at + deleted) + Arrays.hashCode(inserted);
        }
    }

    /** Throws {@link ContractException} for edits that are not in order, or not within the array. */
    public Splice {
        edits = List.copyOf(edits);
        if (length < 0 || length > MOST_ELEMENTS)
            throw new ContractException("array '%s' cannot have %d elements".formatted(path, length));
        if (edits.isEmpty()) throw new ContractException("a splice of array '%s' without any edit".formatted(path));
        int end = 0;
        for (Edit edit : edits) {
            if (edit.at < end || edit.deleted < 0 || edit.deleted > length - edit.at)
                throw new ContractException("a splice of array '%s' removes %d of its %d elements from %d on, after %d"
                        .formatted(path, edit.deleted, length, edit.at, end));
            end = edit.end();
        }
    }

    /** The length of the array afterwards. */
    public int newLength() {
        int newLength = length;
        for (Edit edit : edits) newLength += edit.insertions() - edit.deleted;
        return newLength;
    }

    /** As {@code [length, [at, deleted, [inserted, …]], …]}, the array that {@code elements} is at. */
    static Splice decode(byte[] bytes, BsonElements elements) {
        String path = elements.name();
        if (!canName(path))
            throw new ContractException("a splice of '%s', which is no place by names of fields".formatted(path));
        if (elements.type() != BsonElements.ARRAY) throw malformed(path);
        BsonElements parts = new BsonElements(bytes, elements.valueStart());
        if (!parts.next()) throw malformed(path);
        int length = int32(path, parts);
        List<Edit> edits = new ArrayList<>();
        while (parts.next()) edits.add(edit(path, bytes, parts));
        return new Splice(path, length, edits);
    }

    /**
     * Whether splices can name this place: by names of fields, none of which could be taken for an index, which may be that of another element
     * by now, or for an operator.
     */
    public static boolean canName(String path) {
        for (String name : path.split("\\.", -1))
            if (name.isEmpty() || name.charAt(0) == '$' || name.chars().allMatch(Character::isDigit)) return false;
        return true;
    }

    private static Edit edit(String path, byte[] bytes, BsonElements parts) {
        if (parts.type() != BsonElements.ARRAY) throw malformed(path);
        BsonElements edit = new BsonElements(bytes, parts.valueStart());
        if (!edit.next()) throw malformed(path);
        int at = int32(path, edit);
        if (!edit.next()) throw malformed(path);
        int deleted = int32(path, edit);
        if (!edit.next() || edit.type() != BsonElements.ARRAY) throw malformed(path);
        byte[] inserted = Arrays.copyOfRange(bytes, edit.valueStart(), edit.valueEnd());
        if (edit.next()) throw malformed(path);
        return new Edit(at, deleted, inserted);
    }

    private static int int32(String path, BsonElements number) {
        if (number.type() != BsonElements.INT32) throw malformed(path);
        return number.int32(0);
    }

    private static ContractException malformed(String path) {
        return new ContractException(
                "a splice of array '%s' that is not [length, [at, deleted, [inserted, …]], …]".formatted(path));
    }

    /** Writes the value that {@link #decode} reads. */
    public void writeTo(BsonOutput out) {
        int start = out.getPosition();
        out.writeInt32(0);
        int32(out, "0", length);
        for (int index = 0; index < edits.size(); index++) {
            Edit edit = edits.get(index);
            out.writeByte(BsonElements.ARRAY);
            out.writeCString(Integer.toString(index + 1));
            int inner = out.getPosition();
            out.writeInt32(0);
            int32(out, "0", edit.at);
            int32(out, "1", edit.deleted);
            out.writeByte(BsonElements.ARRAY);
            out.writeCString("2");
            out.writeBytes(edit.inserted);
            end(out, inner);
        }
        end(out, start);
    }

    private static void int32(BsonOutput out, String name, int value) {
        out.writeByte(BsonElements.INT32);
        out.writeCString(name);
        out.writeInt32(value);
    }

    private static void end(BsonOutput out, int start) {
        out.writeByte(0);
        out.writeInt32(start, out.getPosition() - start);
    }

    /** An update's other parts, with one more part of splices. */
    public static byte[] append(byte[] parts, List<Splice> splices) {
        BasicOutputBuffer out = new BasicOutputBuffer(parts.length + 64);
        out.writeBytes(parts, 0, parts.length - 1);
        out.writeByte(BsonElements.DOCUMENT);
        out.writeCString(Change.SPLICE);
        int start = out.getPosition();
        out.writeInt32(0);
        for (Splice splice : splices) {
            out.writeByte(BsonElements.ARRAY);
            out.writeCString(splice.path);
            splice.writeTo(out);
        }
        end(out, start);
        end(out, 0);
        return out.toByteArray();
    }
}
