package io.towpath.fold;

import io.towpath.record.BsonElements;
import io.towpath.record.Splice;
import java.util.ArrayList;
import java.util.List;
import org.bson.io.BasicOutputBuffer;
import org.bson.io.BsonOutput;

/** An array that changes: nulls fill the gap beyond its end, and an element that is unset becomes null. */
final class Elements extends Container {
    /** The server fills no larger gap (kMaxPaddingAllowed in its source). */
    private static final int LARGEST_GAP = 1_500_000;

    /** A larger array that is not known itself is not worth the memory. */
    private static final int MOST_KEPT = 100_000;

    private final List<Value> values = new ArrayList<>();

    /** Null when the elements are not named by their index: the server would rename them. */
    static Elements open(Slice slice) {
        Elements array = new Elements();
        BsonElements elements = new BsonElements(slice.bytes(), slice.start());
        while (elements.next()) {
            if (!name(slice.bytes(), elements).equals(Integer.toString(array.values.size()))) return null;
            array.values.add(slice(slice.bytes(), elements));
        }
        return array;
    }

    private static Slice slice(byte[] bytes, BsonElements elements) {
        return new Slice(elements.type(), bytes, elements.valueStart(), elements.valueEnd());
    }

    /** The array that a splice leaves of an unknown one; null when that is too large. */
    static Elements after(Splice splice) {
        if (splice.length() > MOST_KEPT) return null;
        Elements array = new Elements();
        for (int index = 0; index < splice.length(); index++) array.values.add(new Kept(index));
        array.splice(splice);
        return array;
    }

    /** The splice that leaves this array, where {@code first} was the first of those that made it. */
    Splice since(Splice first) {
        List<Splice.Edit> edits = new ArrayList<>();
        int next = 0;
        int from = 0;
        for (int i = 0; i <= values.size(); i++) {
            if (i < values.size() && !(values.get(i) instanceof Kept)) continue;
            int index = i < values.size() ? ((Kept) values.get(i)).index() : first.length();
            if (index > next || i > from)
                edits.add(new Splice.Edit(next, index - next, array(values.subList(from, i))));
            next = index + 1;
            from = i + 1;
        }
        if (edits.isEmpty()) edits.add(new Splice.Edit(0, 0, array(List.of())));
        return new Splice(first.path(), first.length(), edits);
    }

    @Override
    public byte type() {
        return BsonElements.ARRAY;
    }

    @Override
    Value get(String name) {
        int index = index(name);
        return index >= 0 && index < values.size() ? values.get(index) : null;
    }

    @Override
    boolean accepts(String name) {
        int index = index(name);
        return index >= 0 && index - values.size() < LARGEST_GAP;
    }

    @Override
    void put(String name, Value value) {
        int index = index(name);
        while (values.size() <= index) values.add(Slice.NULL);
        values.set(index, value);
    }

    @Override
    void remove(String name) {
        if (get(name) != null) put(name, Slice.NULL);
    }

    void cut(int newSize) {
        if (newSize < values.size()) values.subList(newSize, values.size()).clear();
    }

    boolean takes(Splice splice) {
        return splice.length() == values.size();
    }

    /** Applies a splice that {@link #takes} accepts. */
    void splice(Splice splice) {
        for (int i = splice.edits().size() - 1; i >= 0; i--) { // backwards: places are those before
            Splice.Edit edit = splice.edits().get(i);
            List<Value> inserted = new ArrayList<>();
            BsonElements elements = new BsonElements(edit.inserted(), 0);
            while (elements.next()) inserted.add(slice(edit.inserted(), elements));
            List<Value> replaced = values.subList(edit.at(), edit.end());
            replaced.clear();
            replaced.addAll(inserted);
        }
    }

    @Override
    public void writeTo(BsonOutput out) {
        write(out, values);
    }

    private static byte[] array(List<Value> values) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        write(out, values);
        return out.toByteArray();
    }

    private static void write(BsonOutput out, List<Value> values) {
        frame(out, () -> {
            for (int i = 0; i < values.size(); i++) write(out, Integer.toString(i), values.get(i));
        });
    }

    /** The array index in a name; -1 when there is none. */
    static int index(String name) {
        boolean isNumber = !name.isEmpty()
                && name.length() <= 8
                && (name.length() == 1 || name.charAt(0) != '0')
                && name.chars().allMatch(digit -> digit >= '0' && digit <= '9');
        return isNumber ? Integer.parseInt(name) : -1;
    }
}
