package io.towpath.fold;

/** One write that has the effect of several changes. */
public sealed interface Folded {
    /** The document is now this one. */
    record Document(byte[] bytes) implements Folded {}

    /** MongoDB's update operators, for a document that exists. */
    record Operators(byte[] bytes) implements Folded {}

    /** The document is gone. */
    record Delete() implements Folded {}

    /** A single change, unfolded. */
    record Alone(int change) implements Folded {}
}
