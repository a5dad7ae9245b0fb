package io.towpath.fold;

import org.bson.io.BsonOutput;

/** A BSON value: its original bytes, or opened for changes. */
sealed interface Value permits Slice, Container {
    byte type();

    /** The value's bytes, without type and name. */
    void writeTo(BsonOutput out);
}
