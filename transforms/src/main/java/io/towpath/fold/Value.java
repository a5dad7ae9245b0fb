package io.towpath.fold;

import org.bson.io.BsonOutput;

/** A BSON value: the bytes that it came in, or opened to be changed. */
sealed interface Value permits Slice, Container {
    byte type();

    /** The value's bytes, without type and name. */
    void writeTo(BsonOutput out);
}
