package io.towpath.fold;

import org.bson.io.BsonOutput;

/** A BSON value: its original bytes, opened for changes, or unknown. */
sealed interface Value permits Slice, Container, Kept {
    byte type();

    /** The value's bytes, without type and name. */
    void writeTo(BsonOutput out);
}
