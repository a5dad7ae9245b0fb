package io.towpath.source.splice;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.record.BsonElements;
import io.towpath.record.Splice;
import java.util.Arrays;
import java.util.Optional;

/** The path of an array that splices can name. */
record ArrayPath(String text, byte[] bytes) {
    /** Empty when splices cannot name it. */
    static Optional<ArrayPath> of(byte[] value, BsonElements field) {
        byte[] bytes = Arrays.copyOfRange(value, field.nameStart(), field.valueStart() - 1);
        String text = new String(bytes, UTF_8);
        boolean canBeNamed = Splice.canName(text) && Arrays.equals(text.getBytes(UTF_8), bytes);
        return canBeNamed ? Optional.of(new ArrayPath(text, bytes)) : Optional.empty();
    }

    /** How the path that is the name of an update's field lies to this one. */
    PathRelation relation(byte[] value, BsonElements field) {
        return PathRelation.of(value, field.nameStart(), field.valueStart() - 1, bytes, 0, bytes.length);
    }

    /** The element that a path within this one begins with. */
    Optional<ElementPlace> element(byte[] value, BsonElements field) {
        return ElementPlace.of(value, field.nameStart() + bytes.length + 1, field.valueStart() - 1);
    }
}
