package io.towpath.fold;

import io.towpath.record.BsonElements;
import java.util.ArrayList;
import java.util.List;
import org.bson.io.BsonOutput;

/** An array that changes: nulls fill the gap beyond its end, and an element that is unset becomes null. */
final class Elements extends Container {
    /** The server fills no larger gap (kMaxPaddingAllowed in its source). */
    private static final int LARGEST_GAP = 1_500_000;

    private final List<Value> values = new ArrayList<>();

    /** Null when the elements are not named by their index: the server would rename them. */
    static Elements open(Slice slice) {
        Elements array = new Elements();
        BsonElements elements = new BsonElements(slice.bytes(), slice.start());
        while (elements.next()) {
            if (!name(slice.bytes(), elements).equals(Integer.toString(array.values.size()))) return null;
            array.values.add(new Slice(elements.type(), slice.bytes(), elements.valueStart(), elements.valueEnd()));
        }
        return array;
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

    @Override
    public void writeTo(BsonOutput out) {
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
