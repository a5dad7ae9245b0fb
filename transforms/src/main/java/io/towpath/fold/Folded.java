package io.towpath.fold;

/** One write that says what several changes do. */
public sealed interface Folded {
    /** The document is now this one. */
    record Document(byte[] bytes) implements Folded {}

    /** MongoDB's update operators, for a document that is there. */
    record Operators(byte[] bytes) implements Folded {}

    /** The document is gone. */
    record Delete() implements Folded {}

    /** A change as it came. */
    record Alone(int change) implements Folded {}
}
