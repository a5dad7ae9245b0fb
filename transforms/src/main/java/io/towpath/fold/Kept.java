package io.towpath.fold;

import org.bson.io.BsonOutput;

/**
 * An element of an array at the destination, which is unknown here.
 *
 * @param index in the array before
 */
record Kept(int index) implements Value {
    @Override
    public byte type() {
        throw new IllegalStateException("unknown");
    }

    @Override
    public void writeTo(BsonOutput out) {
        throw new IllegalStateException("unknown");
    }
}
