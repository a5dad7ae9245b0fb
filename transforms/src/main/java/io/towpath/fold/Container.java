package io.towpath.fold;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import io.towpath.record.BsonElements;
import org.bson.io.BsonOutput;

/**
 * A document or an array that changes as the server's update operators change it. Names have one character per byte, so that those that
 * are not UTF-8 stay unchanged.
 */
abstract sealed class Container implements Value permits Fields, Elements {
    /** The value of this name; null when there is none. */
    abstract Value get(String name);

    /** Whether a value of this name can be in it. */
    abstract boolean accepts(String name);

    abstract void put(String name, Value value);

    abstract void remove(String name);

    /** Opens a value as a container; null when it is none, or unknown, or when the server would change its bytes. */
    static Container opened(Value value) {
        if (value instanceof Container container) return container;
        if (!(value instanceof Slice slice)) return null;
        if (slice.type() == BsonElements.DOCUMENT) return Fields.open(slice);
        return slice.type() == BsonElements.ARRAY ? Elements.open(slice) : null;
    }

    /** Whether the server would accept the step; false also when that is not certain. */
    final boolean takes(UpdateStep step, int from) {
        Container at = this;
        int last = step.names().length - 1;
        for (int i = from; i < last; i++) {
            String name = step.names()[i];
            Value child = at.get(name);
            if (child == null)
                return step.kind() == UpdateStep.Kind.UNSET
                        || step.kind() != UpdateStep.Kind.SPLICE && at.accepts(name);
            Container inner = opened(child);
            if (inner == null) return step.kind() == UpdateStep.Kind.UNSET && isScalar(child);
            if (inner != child) at.put(name, inner);
            at = inner;
        }
        String name = step.name();
        return switch (step.kind()) {
            case SET -> at.accepts(name);
            case UNSET -> true;
            case TRUNCATE -> at.get(name) == null ? at.accepts(name) : at.opensAsArray(name);
            case SPLICE -> at.opensAsArray(name) && ((Elements) at.get(name)).takes(step.splice());
        };
    }

    /** Whether there is nothing at the step's place. */
    final boolean lacks(UpdateStep step) {
        Container at = this;
        for (String name : step.names()) {
            Value child = at == null ? null : at.get(name);
            if (child == null) return true;
            at = opened(child);
        }
        return false;
    }

    /** Applies a step that {@link #takes} accepts. */
    final void apply(UpdateStep step, int from) {
        Container at = this;
        int last = step.names().length - 1;
        for (int i = from; i < last; i++) {
            String name = step.names()[i];
            Value child = at.get(name);
            if (step.kind() == UpdateStep.Kind.UNSET && (child == null || isScalar(child))) return;
            Container inner = child == null ? new Fields() : opened(child);
            if (inner != child) at.put(name, inner);
            at = inner;
        }
        String name = step.name();
        switch (step.kind()) {
            case SET -> at.put(name, step.value());
            case UNSET -> at.remove(name);
            case TRUNCATE -> {
                if (at.get(name) == null) at.put(name, new Elements());
                else ((Elements) opened(at.get(name))).cut(step.newSize());
            }
            case SPLICE -> ((Elements) opened(at.get(name))).splice(step.splice());
        }
    }

    private boolean opensAsArray(String name) {
        if (!(opened(get(name)) instanceof Elements elements)) return false;
        put(name, elements);
        return true;
    }

    private static boolean isScalar(Value value) {
        return value instanceof Slice slice
                && slice.type() != BsonElements.DOCUMENT
                && slice.type() != BsonElements.ARRAY;
    }

    static String name(byte[] bytes, BsonElements element) {
        return new String(bytes, element.nameStart(), element.valueStart() - 1 - element.nameStart(), ISO_8859_1);
    }

    static void write(BsonOutput out, String name, Value value) {
        begin(out, value.type(), name);
        value.writeTo(out);
    }

    /** Writes an element's type and name, which its value follows. */
    static void begin(BsonOutput out, byte type, String name) {
        out.writeByte(type);
        byte[] bytes = name.getBytes(ISO_8859_1);
        out.writeBytes(bytes, 0, bytes.length);
        out.writeByte(0);
    }

    /** Frames what {@code elements} writes as a document. */
    static void frame(BsonOutput out, Runnable elements) {
        int start = out.getPosition();
        out.writeInt32(0);
        elements.run();
        out.writeByte(0);
        out.writeInt32(start, out.getPosition() - start);
    }
}
